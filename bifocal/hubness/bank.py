"""The protocol of corrections, and the bank of queries that they are fitted on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from bifocal.registry import build, split

Array = NDArray[Any]
FILE = "hubness.safetensors"
BLOCK = 1024
"""Candidates per matrix product."""


class HubnessCorrection(Protocol):
    """A part of ``bifocal.hubness``: a bias of each candidate, which is added to its scores for
    every query.

    It depends only on the candidate's scores with a bank of training queries, so it is computed
    once, for the index.
    """

    def bias(self, scores: Array) -> Array:
        """Return the biases (n,) of n candidates from their scores (B, n) with the B queries of the
        bank."""
        ...


@dataclass(frozen=True)
class HubnessBank:
    """Vectors of training captions (B, d) and images (C, d), which are queries for each other, and
    the correction."""

    captions: Array
    images: Array
    correction: HubnessCorrection
    reference: dict[str, object]

    @classmethod
    def build(cls, captions: Array, images: Array, correction: object) -> "HubnessBank":
        """Return a bank with float16 vectors, as a file holds them."""
        name, arguments = split(correction)
        built: HubnessCorrection = build("bifocal.hubness", correction)
        return cls(
            captions.astype(np.float16),
            images.astype(np.float16),
            built,
            {"name": name, **arguments},
        )

    def image_bias(self, images: Array) -> Array:
        """Return the biases (N,) float32 of images (N, d), which are added to their scores for any
        sentence."""
        return self._bias(self.captions, images)

    def caption_bias(self, captions: Array) -> Array:
        """Return the biases (M,) float32 of captions (M, d), which are added to their scores for
        any image."""
        return self._bias(self.images, captions)

    def _bias(self, queries: Array, candidates: Array) -> Array:
        bank = queries.astype(np.float32)
        blocks = [
            candidates[start : start + BLOCK].astype(np.float32)
            for start in range(0, len(candidates), BLOCK)
        ]
        biases = [self.correction.bias(bank @ block.T) for block in blocks]
        return np.concatenate([np.zeros(0), *biases]).astype(np.float32)

    def write(self, directory: Path) -> None:
        """Write ``hubness.safetensors``."""
        arrays = {
            "captions": np.ascontiguousarray(self.captions),
            "images": np.ascontiguousarray(self.images),
        }
        save_file(arrays, directory / FILE, metadata={"correction": json.dumps(self.reference)})

    @classmethod
    def read(cls, directory: Path) -> "HubnessBank | None":
        """Return the bank in a directory, if it has one."""
        if not (directory / FILE).is_file():
            return None
        with safe_open(directory / FILE, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in ("captions", "images")}
            return cls.build(**arrays, correction=json.loads(file.metadata()["correction"]))
