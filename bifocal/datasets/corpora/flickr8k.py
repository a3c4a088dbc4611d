"""Flickr8k in its published files: one file of captions and one list of images per split."""

from pathlib import Path

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.datasets.formats.entries import numbered, read_entries
from bifocal.datasets.formats.files import find_lists, read_lines, read_names, require_root

TOKENS = "Flickr8k.token.txt"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


class Flickr8k:
    """8,000 photographs with five captions each.

    Hodosh, Young and Hockenmaier, "Framing image description as a ranking task", JAIR 2013. The
    image id is its file name; the caption id is its line in the caption file, from 0.

    A split without its list is empty. Images outside all lists, and their captions, are excluded
    and listed.

    Args:
        root: folder of ``Flickr8k.token.txt`` and of the lists
            ``Flickr_8k.{train,dev,test}Images.txt``.
        images: folder of the photographs below ``root``; the published archive calls it
            ``Flicker8k_Dataset``.
    """

    def __init__(self, root: Path | str | None = None, images: str = "images") -> None:
        self.root, self.images = root, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root, "Flickr8k", f"{TOKENS}, {', '.join(LISTS.values())} and the images"
        )
        folder = root / self.images
        corpus = Corpus(folder)
        lines = numbered(root / TOKENS, enumerate(read_lines(root / TOKENS, "Flickr8k")))
        captions = read_entries("caption", lines, _read_caption, corpus.rejected)
        lists = find_lists(root, LISTS, "Flickr8k")
        for split, path in lists.items():
            corpus.images += [
                ImageEntry(name, name, split) for name in read_names(path, "Flickr8k")
            ]
        listed = {entry.image_id for entry in corpus.images}
        if not folder.is_dir():
            raise ValueError(
                f"Flickr8k: {folder} is not a folder; set the argument images to the "
                "photographs' folder"
            )
        reason = f"in none of the lists {', '.join(LISTS[split] for split in lists)}"
        present = {path.name for path in folder.iterdir() if path.is_file()}
        for name in sorted(present - listed):
            corpus.exclude("image", name, reason)
        for caption in captions:
            if caption.image_id in listed:
                corpus.captions.append(caption)
            else:
                corpus.exclude(
                    "caption",
                    f"{caption.caption_id} of {caption.image_id}",
                    f"its image is {reason}",
                )
        return corpus


def _read_caption(numbered_line: tuple[int, str]) -> CaptionEntry:
    number, line = numbered_line
    name, tab, text = line.partition("\t")
    image_id, sign, _ = name.rpartition("#")
    if not (tab and sign):
        raise ValueError(f"{line[:80]!r}, expected name.jpg#number<tab>caption")
    return CaptionEntry(number, image_id, text)
