"""Places of phrases in a static copy: what the page computes them from, as
``bifocal.onnx.pointing`` does."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bifocal.onnx.heatmaps import SIDE
from bifocal.onnx.int8 import quantize_rows
from bifocal.onnx.pointing import PointingHead
from bifocal.onnx.pointing.phrases import ARTICLES, MAX_PHRASES, SEPARATORS
from bifocal.onnx.pointing.similarity import CLASSES, PROMPT, SENTENCES, VECTORS
from bifocal.progress import track
from bifocal.serving.service.models import BLUR
from bifocal.serving.site.contents import write_json
from bifocal.serving.site.sentences import describe_subwords

COMPONENTS = 24
"""Rank of the stored class probabilities of the cells of an image."""
VALUES = ("temperature", "sigma", "center", "slope", "offset", "threshold")

Array = NDArray[Any]


def write_places(head: PointingHead, files: Sequence[Path | None], folder: Path) -> int:
    """Write a head, and the classes of each image file; return the number of bytes of one image.

    Args:
        files: of the items, at least one; None for an item without a picture.
    """
    folder.mkdir()
    size = 0
    for number, file in enumerate(track(files, "write places")):
        if file is not None:
            read = head.read(file.read_bytes())
            content = encode_image(read.cells, read.presence)
            (folder / f"{number}.bin").write_bytes(content)
            size, shapes = len(content), [classes.shape[:2] for classes in read.cells]
    components = min(
        COMPONENTS, len(read.presence), sum(height * width for height, width in shapes)
    )
    description = {name: getattr(head, name) for name in VALUES}
    description |= {
        "shapes": shapes,
        "classes": len(read.presence),
        "components": components,
        "side": SIDE,
        "blur": BLUR,
        "separators": sorted(SEPARATORS),
        "articles": sorted(ARTICLES),
        "max_phrases": MAX_PHRASES,
    }
    write_json(folder / "head.json", description | _similarity(head.directory, folder))
    return size


def encode_image(cells: Sequence[Array], presence: Array) -> bytes:
    """Return class probabilities (K,) of an image, and of its cells (h, w, K) at each size as two
    matrices of int8.

    The singular vectors of the largest singular values give the matrices: components (r, K) of the
    classes and (r, cells) of the cells, with one scale for each of the r pairs. Before, the means
    of each class and of each cell are subtracted: neither changes the standardized map of a phrase.
    """
    centered = np.concatenate([_centered(values) for values in cells])
    left, sizes, right = np.linalg.svd(centered, full_matrices=False)
    of_cells, cell_scales = quantize_rows((left * sizes).T[:COMPONENTS])
    of_classes, class_scales = quantize_rows(right[:COMPONENTS])
    numbers = np.concatenate([presence, cell_scales * class_scales]).astype("<f4")
    return numbers.tobytes() + of_classes.tobytes() + of_cells.tobytes()


def _centered(values: Array) -> Array:
    cells = values.reshape(-1, values.shape[-1]).astype(np.float32)
    cells = cells - cells.mean(axis=0)
    centered: Array = cells - cells.mean(axis=1, keepdims=True)
    return centered


def _similarity(head: Path, folder: Path) -> dict[str, Any]:
    """Write the sentence encoder with the vectors of the classes, or the texts of the classes
    without one."""
    if not (head / SENTENCES).is_file():
        shutil.copy(head / CLASSES, folder / CLASSES)
        return {"encoder": None}
    description = describe_subwords(head, "of the pointing head's sentence encoder")
    shutil.copy(head / SENTENCES, folder / SENTENCES)
    write_json(folder / "readers.json", [description])
    vectors = load_file(head / VECTORS)
    values, scales = quantize_rows(np.concatenate([vectors["synonyms"], vectors["definitions"]]))
    (folder / "classes.i8").write_bytes(values.tobytes())
    (folder / "classes.f32").write_bytes(scales.astype("<f4").tobytes())
    encoder = {"graph": f"{folder.name}/{SENTENCES}", "readers": f"{folder.name}/readers.json"}
    return {"encoder": encoder, "prompt": PROMPT, "synonyms": vectors["classes"].tolist()}
