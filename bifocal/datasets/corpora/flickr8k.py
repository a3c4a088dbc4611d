"""Flickr8k as it is published: a token file and a list of images for each split."""

from pathlib import Path

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry, RejectedEntry, read_lines, require_root

TOKENS = "Flickr8k.token.txt"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


class Flickr8k:
    """8,000 photographs with five captions each.

    Hodosh, Young and Hockenmaier, "Framing image description as a ranking task", JAIR 2013. The image's id is its file
    name, the caption's id its line in the token file, from 0.

    A split whose list is not there stays empty. An image in no list, and its captions, are left out and listed.

    Args:
        root: folder of ``Flickr8k.token.txt`` and the lists ``Flickr_8k.{train,dev,test}Images.txt``.
        images: folder of the photographs below ``root``; as downloaded it is called ``Flicker8k_Dataset``.
    """

    def __init__(self, root: Path | None = None, images: str = "images") -> None:
        self.root, self.images = root, images

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: there is no token file, or a line of it is not ``name#number<tab>caption``, or no list.
        """
        root = require_root(self.root, "Flickr8k", f"{TOKENS}, {', '.join(LISTS.values())} and the images")
        captions = _captions(root / TOKENS)
        entries = _listed(root)
        listed = {entry.image_id for entry in entries}
        folder = root / self.images
        if not folder.is_dir():
            raise ValueError(f"Flickr8k: {folder} is no folder; set the source's option images to the photographs'")
        reason = f"in none of the lists {', '.join(name for name in LISTS.values() if (root / name).is_file())}"
        present = {path.name for path in folder.iterdir() if path.is_file()}
        left_out = [RejectedEntry("image", name, reason, by_design=True) for name in sorted(present - listed)]
        left_out += [
            RejectedEntry(
                "caption", f"{caption.caption_id} of {caption.image_id}", f"its image is {reason}", by_design=True
            )
            for caption in captions
            if caption.image_id not in listed
        ]
        kept = [caption for caption in captions if caption.image_id in listed]
        return Corpus(folder, entries, kept, left_out=left_out)


def _captions(path: Path) -> list[CaptionEntry]:
    captions = []
    for number, line in enumerate(read_lines(path, "Flickr8k")):
        name, tab, text = line.partition("\t")
        image_id, sign, _ = name.rpartition("#")
        if not (tab and sign):
            raise ValueError(f"{path}, line {number + 1}: {line[:80]!r}, expected name.jpg#number<tab>caption")
        captions.append(CaptionEntry(number, image_id, text))
    return captions


def _listed(root: Path) -> list[ImageEntry]:
    lists = {split: root / name for split, name in LISTS.items() if (root / name).is_file()}
    if not lists:
        raise ValueError(f"Flickr8k: {root} has none of the lists {', '.join(LISTS.values())}")
    return [
        ImageEntry(name.strip(), name.strip(), split)
        for split, path in lists.items()
        for name in read_lines(path, "Flickr8k")
        if name.strip()
    ]
