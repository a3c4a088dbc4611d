"""The exported pointing head of a contrastive model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.pixels import ImageFile
from bifocal.onnx.pointing.head import ImageHead, Place
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
        self.text_graph = open_session(directory / PHRASES, threads=1)  # a phrase is too short for more
        self.reader = FixedLength(SubwordTokenizer.read(directory / TOKENIZER))

    def locate(self, image: ImageFile | list[NDArray[Any]], phrases: Sequence[str], side: int) -> list[Place]:
        cells = self.cells(image)
        return [Place(self.heatmap([values @ vector for values in cells], side)) for vector in self.vectors(phrases)]

    def vectors(self, phrases: Sequence[str]) -> NDArray[np.float32]:
        """Return the unit vectors (P, d) of P phrases: each the sum of the phrase's and of its prompt's."""
        texts = [text for phrase in phrases for text in (phrase, PROMPT.format(phrase))]
        (vectors,) = run_graph(self.text_graph, self.reader.batch(texts)[:1])
        return unit(unit(vectors).reshape(len(phrases), 2, -1).sum(axis=1))
