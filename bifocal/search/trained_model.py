"""A trained model in three lines: ``bifocal.load("runs/mine").search("a red star")``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from bifocal.datasets.remote_files import is_address
from bifocal.durable import reading
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash, read_whole
from bifocal.onnx.heatmaps import LOCALIZER, SIDE, HeatmapModel, peak
from bifocal.onnx.image_limits import max_pixels
from bifocal.onnx.images import open_image
from bifocal.onnx.pointing import Pointer, open_pointer
from bifocal.onnx.text.captions import check_texts
from bifocal.onnx.towers import is_towers
from bifocal.report.pictures import overlay
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.items import Items
from bifocal.search.query import Mode, Results, encode_file
from bifocal.search.search import Search
from bifocal.version import install

ONNX, COLLECTION, INDEX = (Path("artifacts") / name for name in ("onnx", "collection", "index"))

SHOWN = 2048
"""A JPEG is pointed in at a fraction of its resolution if each side keeps this many pixels."""


@dataclass(frozen=True)
class Location:
    """Where a phrase is in an image.

    Attributes:
        heatmap: (96, 96), over the image stretched to a square; higher where the image fits the
            phrase better.
        point: x and y of the highest value, as fractions of the image's width and height: a guess.
        image: the image.
        probability: calibrated probability that the phrase is in the image; None if the model
            cannot tell.
        present: False if the probability is too low to show the point.
        unknown: words of the phrase that the model does not know, and leaves out.
    """

    heatmap: NDArray[np.floating]
    point: tuple[float, float]
    image: Image.Image
    probability: float | None = None
    present: bool = True
    unknown: Sequence[str] = ()

    def picture(self) -> Image.Image:
        """Return the image with the heatmap on it, and a ring around the point; without both unless
        ``present``."""
        return overlay(self.image, self.heatmap, self.point) if self.present else self.image


def locate(pointer: Pointer, image: Path | str | Image.Image, phrase: str) -> Location:
    """Return where a phrase is in an image, by a pointer such as
    ``bifocal.onnx.pointing.PointingHead``."""
    check_texts([phrase])
    if not phrase.strip():
        raise ValueError("the phrase is empty: name something to find in the image")
    unknown = pointer.unknown_words(phrase)
    given = Path(image) if isinstance(image, str) else image
    opened = open_image(given, max_pixels(), SHOWN)
    (place,) = pointer.locate(encode_file(opened), [phrase], SIDE)
    return Location(
        place.heatmap, peak(place.heatmap), opened, place.probability, place.present, unknown
    )


def open_search(
    onnx: Path, embedder: Embedder, collection: Path, index: Path | None, images: Path | None = None
) -> Search:
    """Return a model's search by an index or the collection's vectors; ``ValueError`` if they have
    another model.

    Args:
        images: folder of the images; None for the root of the collection.
    """
    with reading(*(folder.parent for folder in (onnx, collection, index) if folder is not None)):
        digest, opened = model_hash(onnx), Collection.open(collection)
        if opened.model.sha256 != digest:
            raise ValueError(
                f"the collection in {collection} was embedded by another model: embed it again"
            )
        localizer = None
        if (onnx / LOCALIZER).is_file():
            localizer = read_whole(onnx, lambda folder: HeatmapModel(folder, embedder))
        found = (
            index_of_collection(opened, None)
            if index is None
            else SearchIndex.open(index, digest, opened)
        )
        # what reading a table has freed, 50 MB of a million items
        pa.default_memory_pool().release_unused()
        present, root = _without_deleted(found, opened), opened.description.root
        folder = images or (None if is_address(root) else collection / root)
        return Search(
            present,
            embedder,
            opened,
            localizer,
            Items(present.items, folder, follow_links=opened.description.follow_links),
        )


def _without_deleted(index: SearchIndex, collection: Collection) -> SearchIndex:
    """Return an index without the items that were deleted from its collection."""
    if (
        index.items["item_id"].equals(collection.items["item_id"])
        and not (collection.deleted & ~index.removed).any()
    ):
        return index
    rows = ((item_id, collection.lookup.row(item_id)) for item_id in index)
    gone = [item_id for item_id, row in rows if row is None or collection.deleted[row]]
    return index.without_items(gone) if gone else index


class TrainedModel:
    """The model of a run: sentences and images in one space.

    The exported ONNX graphs encode sentences and images: nothing here needs torch.

    Args:
        directory: a run folder, as ``bifocal train`` and ``make repro`` write it.

    Raises:
        FileNotFoundError: the folder holds no exported model.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        onnx = self.directory / ONNX
        if not onnx.is_dir():
            raise FileNotFoundError(
                f"{self.directory} holds no exported model: expected {ONNX} in it, as 'bifocal "
                "train' writes it"
            )
        self.embedder = Embedder(onnx)

    def encode_text(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors (N, d), of unit norm, of N sentences."""
        if isinstance(sentences, str):
            raise TypeError(f"got the sentence {sentences!r}, expected a list of sentences")
        vectors: NDArray[np.float32] = self.embedder.embed_sentences(list(sentences))
        return vectors

    def encode_image(self, images: Sequence[Path | str | Image.Image]) -> NDArray[np.float32]:
        """Return unit vectors (N, d) for N images: files, or Pillow images.

        Raises:
            ValueError: the model reads only published features, or a file is not an image.
        """
        if isinstance(images, str | bytes | Path | Image.Image):
            raise TypeError("got one image, expected a list of images")
        if "image" not in self.embedder.inputs:
            raise ValueError(
                "no exported graph computes this model's features from images: it reads "
                "published features"
            )
        vectors: NDArray[np.float32] = self.embedder.embed_images(
            [encode_file(image) for image in images]
        )
        return vectors

    def search(
        self,
        query: str | Path | Image.Image | None = None,
        k: int = 5,
        *,
        offset: int = 0,
        like: str | None = None,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        mode: Mode = "vectors",
        where: Mapping[str, Any] | None = None,
        group: str | None = None,
        per_group: int = 1,
    ) -> Results:
        """Return the ``k`` images of the run's dataset that fit best, best first.

        Args:
            query: a sentence, or an image as a ``Path`` or an image of Pillow.
            offset: better results to leave out.
            like, plus, minus, mode, where, group, per_group: see ``bifocal.search.Search``.

        Raises:
            FileNotFoundError: the run has no index or no collection.
            ValueError: the index belongs to another model, or ``Search`` rejects the query.
        """
        if not isinstance(query, str | Path | Image.Image | None):
            raise TypeError(
                f"query is {query!r}, expected a sentence, a Path or an image of Pillow"
            )
        return self._search(
            query if isinstance(query, str) else None, k, offset=offset, like=like,
            image=None if isinstance(query, str) else query, plus=plus, minus=minus, mode=mode,
            where=where, group=group, per_group=per_group,
        )  # fmt: skip

    @cached_property
    def _search(self) -> Search:
        return open_search(
            self.directory / ONNX,
            self.embedder,
            self.directory / COLLECTION,
            self.directory / INDEX,
        )

    @property
    def index(self) -> SearchIndex:
        """The index of the collection.

        Raises:
            FileNotFoundError: the run has no index or no collection.
            ValueError: the index belongs to another model.
        """
        return self._search.index

    @cached_property
    def collection(self) -> Collection:
        """The images of the run's dataset.

        Raises:
            FileNotFoundError: the run has no collection.
        """
        return Collection.open(self.directory / COLLECTION)

    def where(self, image: Path | str | Image.Image, phrase: str) -> Location:
        """Return where ``phrase`` is in ``image``, by the pointing head of the backbone, or else by
        the localizer.

        Raises:
            FileNotFoundError: the model has neither, or reads published features.
            ValueError: the phrase has no word.
        """
        return locate(self.pointer, image, phrase)

    @cached_property
    def pointer(self) -> Pointer:
        """The pointing head of the backbone, or else the localizer of the model.

        Raises:
            FileNotFoundError: the model has neither, or reads published features.
        """
        pointer = open_pointer(self.directory / ONNX, self.embedder)
        if pointer is None and is_towers(self.directory / ONNX):
            raise FileNotFoundError(
                f"{self.directory / ONNX} has encoders of whole images, which do not show "
                f"where a phrase is: install the encoder small ({install('search', 'small')}), and "
                "run 'bifocal index' again"
            )
        if pointer is None:
            raise FileNotFoundError(
                f"{self.directory / ONNX} has neither a pointing head nor a localizer: the "
                "model reads published features, or an older version exported it; train "
                "SMILEEncoder, BEANEncoder or MultiLevelEncoder, or export it again"
            )
        return pointer


def load(directory: Path | str) -> TrainedModel:
    """Return the model of a run folder.

    Example::

        import bifocal

        model = bifocal.load("runs/mine")
        model.search("a dog runs over grass", k=5)
    """
    return TrainedModel(directory)
