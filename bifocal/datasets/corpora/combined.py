"""Splits of several corpora in one dataset."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from bifocal.datasets.base import SPLITS, Corpus, CorpusReader


class Combined:
    """Splits of several corpora: train on one, choose the epoch on another, evaluate on a third.

    The split "train" of the dataset is the split "train" of the first corpus; "val" and "test"
    likewise. Other splits of a corpus are dropped. Two corpora may have equal ids, so an image id
    begins with the name of its corpus, ``Flickr30kEntities/36979.jpg``, and caption ids count from
    0. Published features have the ids of one corpus and cannot be read for such a dataset.

    Args:
        train, val, test: reader of the corpus of this split; None for a dataset without the split.

    Example:
        >>> from bifocal.datasets.corpora import COCO, Flickr30kEntities
        >>> entities = Flickr30kEntities("data/entities")
        >>> corpus = Combined(train=COCO("data/coco"), val=entities, test=entities)
    """

    parts: ClassVar[Mapping[str, str]] = {split: "bifocal.datasets.corpora" for split in SPLITS}

    def __init__(
        self,
        train: CorpusReader | None = None,
        val: CorpusReader | None = None,
        test: CorpusReader | None = None,
    ) -> None:
        readers = {"train": train, "val": val, "test": test}
        self.readers = {split: reader for split, reader in readers.items() if reader is not None}

    def read(self, output_dir: Path) -> Corpus:
        """List the split of each corpus."""
        if not self.readers:
            raise ValueError("Combined needs the reader of at least one of train, val and test")
        corpora = {
            split: _one_split(reader, split, output_dir) for split, reader in self.readers.items()
        }
        roots = [corpus.image_root.absolute() for corpus in corpora.values()]
        image_root = Path(os.path.commonpath(roots))
        joined, metadata = Corpus(image_root), dict[str, Mapping[str, Any]]()
        for (split, corpus), root in zip(corpora.items(), roots, strict=True):
            prefix, folder = f"{type(self.readers[split]).__name__}/", root.relative_to(image_root)
            joined.images += [
                replace(
                    image,
                    image_id=prefix + image.image_id,
                    path=image.path and str(folder / image.path),
                )
                for image in corpus.images
            ]
            number = {
                caption.caption_id: len(joined.captions) + row
                for row, caption in enumerate(corpus.captions)
            }
            joined.captions += [
                replace(
                    caption,
                    caption_id=number[caption.caption_id],
                    image_id=prefix + caption.image_id,
                )
                for caption in corpus.captions
            ]
            joined.phrases += [
                replace(
                    phrase,
                    caption_id=None if phrase.caption_id is None else number[phrase.caption_id],
                    image_id=prefix + phrase.image_id,
                )
                for phrase in corpus.phrases
            ]
            metadata |= {prefix + image_id: values for image_id, values in corpus.metadata.items()}
            joined.labels += [
                replace(label, image_id=prefix + label.image_id) for label in corpus.labels
            ]
        joined.excluded = list(
            dict.fromkeys(entry for corpus in corpora.values() for entry in corpus.excluded)
        )
        joined.rejected = list(
            dict.fromkeys(entry for corpus in corpora.values() for entry in corpus.rejected)
        )
        return replace(joined, metadata=metadata)


def _one_split(reader: CorpusReader, split: str, output_dir: Path) -> Corpus:
    corpus = reader.read(output_dir / split)
    chosen = corpus.only({image.image_id for image in corpus.images if image.split == split})
    if not chosen.images:
        raise ValueError(f"Combined: {type(reader).__name__} has no image in the split {split}")
    return chosen
