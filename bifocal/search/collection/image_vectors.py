"""Image and region vectors from the ONNX graphs of an exported model, without torch."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.durable import file_digest, json_digest
from bifocal.onnx.encoders import Array, ImageGraph, scores_pairs
from bifocal.onnx.files import read_json
from bifocal.onnx.heatmaps import LOCALIZER, image_vectors, square_of
from bifocal.onnx.metadata import COLORS
from bifocal.onnx.pixels import DecodedImage, decode_pixels
from bifocal.onnx.sessions import REGIONS
from bifocal.search.collection.format import Backbone

GRAPH, BACKBONE = "image_encoder.onnx", "backbone.onnx"


class ImageVectors:
    """The image encoder of an exported model with one vector per image, and of its regions if it
    has a localizer."""

    def __init__(self, directory: Path, regions: bool = True) -> None:
        if scores_pairs(directory):
            raise ValueError(
                f"{directory} is a late-interaction model: it compares the words of a query "
                "with all cells of an image, so no single vector of an image can be stored; "
                "use a dual encoder, such as SMILE or BEAN"
            )
        self.graph = ImageGraph(directory, GRAPH)
        self.reads_images = "image" in self.graph.inputs
        self.preprocessing = self.graph.preprocessing | (COLORS if self.reads_images else {})
        self.backbone = _backbone(directory, self.graph, self.preprocessing)
        self.seconds = 0.0
        localizer = directory / LOCALIZER
        description = read_json(localizer) if regions and localizer.is_file() else None
        self._kind: str | None = None if description is None else description["vectors"]
        self._boxes = np.array(description["boxes"] if description else [], np.float32).reshape(
            -1, 4
        )
        dimensions = {value.name: value.shape[-1] for value in self.graph.images.get_outputs()}
        self._output = self.graph.images.get_outputs()[0].name
        self.dimension: int = dimensions[self._output]
        self.region_dimension: int | None = (
            None if self._kind is None else dimensions.get(self._kind, self.dimension)
        )

    def decode(self, file: bytes, max_pixels: int | None) -> DecodedImage:
        """Decode an image file, or reject a too large one by its header; called by several threads
        at once."""
        return decode_pixels(file, self.graph.preprocessing, max_pixels)

    def read_pixels(self, pixels: Sequence[Array]) -> list[Array]:
        """Return the inputs of ``encode_inputs`` for B preprocessed images (3, H, W)."""
        start = time.perf_counter()
        inputs = self.graph.read_resized(pixels)
        self.seconds += time.perf_counter() - start
        return inputs

    def encode_inputs(self, inputs: Sequence[Array]) -> tuple[Array, list[Array] | None]:
        """Return the vectors (B, D) and the regions' vectors (R, d) of B features (R, D), or pixels
        for the encoder."""
        start = time.perf_counter()
        regions: list[Array] | None = None
        if self._kind == REGIONS:
            vectors, of_regions = self.graph.run(inputs, (self._output, REGIONS))
            regions = list(of_regions)
        else:
            (vectors,) = self.graph.run(inputs, (self._output,))
            if self._kind is not None:
                regions = image_vectors(self.graph, self._kind, inputs)
        self.seconds += time.perf_counter() - start
        return vectors, regions

    def boxes(self, width: int, height: int) -> NDArray[np.float32]:
        """Return the boxes (R, 4) of the regions of an image, x0 y0 x1 y1, in its pixels."""
        left, top, right, bottom = square_of(width, height, self.graph.preprocessing)
        relative = np.array([left, top] * 2) + self._boxes * np.array(
            [right - left, bottom - top] * 2
        )
        boxes: NDArray[Any] = relative * np.array([width, height] * 2)
        return boxes.astype(np.float32)


def _backbone(
    directory: Path, graph: ImageGraph, preprocessing: Mapping[str, Any]
) -> Backbone | None:
    """Return the identity of a model's backbone; None without a graph or a fixed number of
    regions."""
    if graph.backbone is None:
        return None
    regions, dim = graph.backbone.get_outputs()[0].shape[1:]
    if not isinstance(regions, int) or not isinstance(dim, int):
        return None
    key = [file_digest(directory / BACKBONE), preprocessing]
    return Backbone(json_digest(key), regions, dim)
