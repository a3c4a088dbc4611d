"""Facts about published corpora and files: counts and sizes that are known before anything is downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import Protocol, runtime_checkable

UNKNOWN = "unknown"
AUTOMATIC = "automatic"
"""Place of a file that its library downloads."""


@dataclass(frozen=True)
class Download:
    """A file to fetch.

    Attributes:
        name: of the file.
        publisher: who publishes it.
        url: address of the file, or of the page that leads to it.
        size: bytes; None if the publisher states none.
        place: where its content belongs, below the folder of the part that reads it; "" for the folder itself.
        check: how to check the file, such as ``"sha256 ede4087e..."``; "unknown" if no sum is published.
    """

    name: str
    publisher: str
    url: str
    size: int | None = None
    place: str = ""
    check: str = UNKNOWN


@dataclass(frozen=True)
class PublishedCorpus:
    """Counts of a published corpus, for predictions of size and time.

    Images and captions are the published numbers. Means of words, of boxes and of file sizes are estimates where the
    publisher states none.

    Attributes:
        images: images of each split.
        captions_per_image: mean number of captions.
        words_per_caption: mean number of tokens.
        phrases_per_image: mean number of phrases with boxes.
        phrase_pairs: different pairs of a phrase and a box in the split "train".
        labels: number of labels of each task.
        words: different words of the training captions.
        frequent_words: words that occur at least 5 times.
        file_size: mean bytes of an image file; 0 if the corpus has no image files.
        image_size: usual width and height in pixels.
        metadata_size: bytes of the JSON or XML files that are read at once.
        downloads: files to fetch.
    """

    images: Mapping[str, int]
    captions_per_image: float = 0.0
    words_per_caption: float = 0.0
    phrases_per_image: float = 0.0
    phrase_pairs: int = 0
    labels: Mapping[str, int] = field(default_factory=dict)
    words: int = 0
    frequent_words: int = 0
    file_size: int = 0
    image_size: tuple[int, int] = (500, 375)
    metadata_size: int = 0
    downloads: tuple[Download, ...] = field(default=())

    def vocabulary(self, min_count: int) -> int:
        """Return the number of training words that occur at least ``min_count`` times, between the known counts.

        Example:
            >>> PublishedCorpus({}, words=18_000, frequent_words=7_400).vocabulary(5)
            7400
        """
        if not self.words:
            return 0
        share: float = (self.frequent_words / self.words) ** log(min_count, 5)
        return int(self.words * share + 0.5)

    @property
    def total_images(self) -> int:
        """Images of all splits."""
        return sum(self.images.values())

    def captions(self, split: str) -> int:
        """Return the number of captions of a split.

        Example:
            >>> PublishedCorpus({"train": 29_000, "val": 1_014}, captions_per_image=5.0).captions("train")
            145000
        """
        return round(self.images.get(split, 0) * self.captions_per_image)

    @property
    def total_captions(self) -> int:
        """Captions of all splits."""
        return sum(self.captions(split) for split in self.images)


@runtime_checkable
class PublishedReader(Protocol):
    """A corpus reader that knows what is published."""

    def published(self) -> PublishedCorpus | None:
        """Return the counts and the files; None if they depend on the user's files."""
        ...


COCO_IMAGES = tuple(
    Download(
        f"{name}.zip", "COCO", f"http://images.cocodataset.org/zips/{name}.zip", size, f"{name}/", f"sha256 {digest}"
    )
    for name, size, digest in (
        ("train2014", 13_510_573_713, "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775"),
        ("val2014", 6_645_013_297, "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0"),
    )
)
"""Sizes and sums of COCO, Karpathy's splits and VOC are those of the checksums of TensorFlow Datasets."""
COCO_ANNOTATIONS = Download(
    "annotations_trainval2014.zip",
    "COCO",
    "http://images.cocodataset.org/annotations/annotations_trainval2014.zip",
    252_872_794,
    "annotations/",
    "sha256 031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
)
KARPATHY_SPLITS = Download(
    "caption_datasets.zip",
    "Karpathy and Fei-Fei",
    "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
    36_745_453,
    "",
    "sha256 4cfd70132527b80933105e5829dc9034eaab9573482e2e680abbab6130244817",
)
FLICKR30K_IMAGES = Download(
    "flickr30k-images.tar.gz",
    "University of Illinois, on request",
    "https://shannon.cs.illinois.edu/DenotationGraph/",
    place="flickr30k-images/",
)
