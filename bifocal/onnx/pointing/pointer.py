"""Pointers of exported models: a pointing head of a backbone, or else the localizer."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import read_whole
from bifocal.onnx.heatmaps import LOCALIZER, HeatmapModel
from bifocal.onnx.pixels import DecodedImage, ImageFile, decode_pixels
from bifocal.onnx.pointing.head import DESCRIPTION, FOLDER, Place, PointingHead


class Pointer(Protocol):
    """Finds phrases in images."""

    @property
    def decoder(self) -> Callable[[bytes], Any]:
        """Function that decodes an image file for ``locate``; another process can call it."""

    def locate(self, image: Any, phrases: Sequence[str], side: int) -> list[Place]:
        """Return where each phrase is in an ``ImageFile`` or a decoded one, with heatmaps (side,
        side)."""

    def unknown_words(self, phrase: str) -> list[str]:
        """Return the words of a phrase that the model does not know; ``ValueError`` if it knows
        none."""


class LocalizerPointer:
    """The localizer of a model: it cannot tell whether a phrase is in an image, unless no region
    supports it."""

    def __init__(self, localizer: HeatmapModel, embedder: Embedder) -> None:
        self.localizer, self.embedder = localizer, embedder

    @property
    def decoder(self) -> Callable[[bytes], DecodedImage]:
        return partial(decode_pixels, preprocessing=self.embedder.preprocessing)

    def unknown_words(self, phrase: str) -> list[str]:
        return self.embedder.unknown_words(phrase)

    def locate(
        self, image: ImageFile | DecodedImage, phrases: Sequence[str], side: int
    ) -> list[Place]:
        texts = self.embedder.embed_sentences(phrases)
        heatmaps, single = (
            self.localizer.heatmaps(image, texts, side),
            len(self.localizer.boxes) == 1,
        )
        return [Place(heatmap, present=single or bool(np.ptp(heatmap))) for heatmap in heatmaps]


def open_pointer(directory: Path, embedder: Embedder, threads: int = 0) -> Pointer | None:
    """Return the pointer of an exported model; None if the model cannot show where a phrase is."""
    if (directory / FOLDER / DESCRIPTION).is_file():
        return read_whole(
            directory / FOLDER,
            lambda folder: PointingHead(folder, threads=threads, embedder=embedder),
        )
    if (directory / LOCALIZER).is_file():
        return read_whole(
            directory, lambda folder: LocalizerPointer(HeatmapModel(folder, embedder), embedder)
        )
    return None
