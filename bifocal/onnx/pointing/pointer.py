"""Pointers of exported models: the pointing head of the backbone, or else the localizer of the model."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.heatmaps import LOCALIZER, HeatmapModel
from bifocal.onnx.pixels import DecodedImage, ImageFile, decode_pixels
from bifocal.onnx.pointing.contrastive import PATCHES, ContrastivePointer
from bifocal.onnx.pointing.head import DESCRIPTION, FOLDER, Place, PointingHead


class Pointer(Protocol):
    """Finds phrases in images."""

    @property
    def decoder(self) -> Callable[[bytes], Any]:
        """Function that decodes an image file for ``locate``; another process can call it."""

    def locate(self, image: Any, phrases: Sequence[str], side: int) -> list[Place]:
        """Return where each phrase is in an ``ImageFile`` or a decoded one, with heatmaps (side, side)."""


class LocalizerPointer:
    """The localizer of a model: it cannot tell whether a phrase is in an image."""

    def __init__(self, localizer: HeatmapModel, embedder: Embedder) -> None:
        self.localizer, self.embedder = localizer, embedder

    @property
    def decoder(self) -> Callable[[bytes], DecodedImage]:
        return partial(decode_pixels, preprocessing=self.embedder.preprocessing)

    def locate(self, image: ImageFile | DecodedImage, phrases: Sequence[str], side: int) -> list[Place]:
        texts = self.embedder.embed_sentences(phrases)
        return [Place(heatmap) for heatmap in self.localizer.heatmaps(image, texts, side)]


def open_head(directory: Path, threads: int = 0) -> PointingHead | ContrastivePointer:
    """Return the pointing head in a folder."""
    if (directory / PATCHES).is_file():
        return ContrastivePointer(directory, threads)
    return PointingHead(directory, threads=threads)


def open_pointer(directory: Path, embedder: Embedder, threads: int = 0) -> Pointer | None:
    """Return the pointer of an exported model; None if the model cannot show where a phrase is."""
    if (directory / FOLDER / DESCRIPTION).is_file():
        return open_head(directory / FOLDER, threads)
    if (directory / LOCALIZER).is_file():
        return LocalizerPointer(HeatmapModel(directory, embedder), embedder)
    return None
