"""Pointers of exported models: a pointing head of a backbone or a contrastive model, or else the
localizer."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import read_whole
from bifocal.onnx.heatmaps import LOCALIZER, HeatmapModel
from bifocal.onnx.pixels import DecodedImage, ImageFile, decode_pixels
from bifocal.onnx.pointing.head import DESCRIPTION, FOLDER, ImageHead, Place, PointingHead
from bifocal.onnx.pointing.similarity import PROMPT, unit
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.text.tokenizer import TOKENIZER, FixedLength, SubwordTokenizer

PATCHES, PHRASES = "patches.onnx", "phrases.onnx"
"""Graphs from pixels to unit vectors of patches, and from ids to vectors of phrases."""


class ContrastivePointer(ImageHead):
    """Where a phrase is in an image: see ``bifocal.localization.heads.MaskCLIP``.

    It has no calibrated probability: every phrase gets a point.

    Args:
        directory: as ``bifocal.export.pointing.export_head`` writes it.
        threads: of a graph; 0 for one per core.
    """

    def __init__(self, directory: Path, threads: int = 0) -> None:
        super().__init__(directory, PATCHES, threads)
        self.text_graph = open_session(
            directory / PHRASES, threads=1
        )  # a phrase is too short for more
        self.reader = FixedLength(SubwordTokenizer.read(directory / TOKENIZER))

    def locate(
        self, image: ImageFile | list[NDArray[Any]], phrases: Sequence[str], side: int
    ) -> list[Place]:
        cells = self.cells(image)
        return [
            Place(self.heatmap([values @ vector for values in cells], side))
            for vector in self.vectors(phrases)
        ]

    def vectors(self, phrases: Sequence[str]) -> NDArray[np.float32]:
        """Return the unit vectors (P, d) of P phrases: each the sum of the phrase's and of its
        prompt's."""
        texts = [text for phrase in phrases for text in (phrase, PROMPT.format(phrase))]
        (vectors,) = run_graph(self.text_graph, self.reader.batch(texts)[:1])
        return unit(unit(vectors).reshape(len(phrases), 2, -1).sum(axis=1))


class Pointer(Protocol):
    """Finds phrases in images."""

    @property
    def decoder(self) -> Callable[[bytes], Any]:
        """Function that decodes an image file for ``locate``; another process can call it."""

    def locate(self, image: Any, phrases: Sequence[str], side: int) -> list[Place]:
        """Return where each phrase is in an ``ImageFile`` or a decoded one, with heatmaps (side,
        side)."""


class LocalizerPointer:
    """The localizer of a model: it cannot tell whether a phrase is in an image, unless no region
    supports it."""

    def __init__(self, localizer: HeatmapModel, embedder: Embedder) -> None:
        self.localizer, self.embedder = localizer, embedder

    @property
    def decoder(self) -> Callable[[bytes], DecodedImage]:
        return partial(decode_pixels, preprocessing=self.embedder.preprocessing)

    def locate(
        self, image: ImageFile | DecodedImage, phrases: Sequence[str], side: int
    ) -> list[Place]:
        texts = self.embedder.embed_sentences(phrases)
        heatmaps, single = (
            self.localizer.heatmaps(image, texts, side),
            len(self.localizer.boxes) == 1,
        )
        return [Place(heatmap, present=single or bool(np.ptp(heatmap))) for heatmap in heatmaps]


def open_head(directory: Path, threads: int = 0) -> PointingHead | ContrastivePointer:
    """Return the pointing head in a folder."""
    if (directory / PATCHES).is_file():
        return ContrastivePointer(directory, threads)
    return PointingHead(directory, threads=threads)


def open_pointer(directory: Path, embedder: Embedder, threads: int = 0) -> Pointer | None:
    """Return the pointer of an exported model; None if the model cannot show where a phrase is."""
    if (directory / FOLDER / DESCRIPTION).is_file():
        return read_whole(directory / FOLDER, lambda folder: open_head(folder, threads))
    if (directory / LOCALIZER).is_file():
        return read_whole(
            directory, lambda folder: LocalizerPointer(HeatmapModel(folder, embedder), embedder)
        )
    return None
