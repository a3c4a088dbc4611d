"""Act of the stage ``prepare_dataset``."""

import inspect
from pathlib import Path
from typing import Any

from bifocal import registry
from bifocal.datasets import write_dataset
from bifocal.datasets.base import Source
from components.prepare_dataset.spec import PrepareDatasetParams

PACKAGE = "bifocal.datasets.corpora"


def run(params: PrepareDatasetParams, *, dataset: Path) -> dict[str, float]:
    """Write the dataset artifact; returns its counts.

    Raises:
        ValueError: the corpus cannot be read, or more of it is broken than the parameters allow.
    """
    return write_dataset(
        dataset,
        params.source.name,
        build_source(params).read(dataset / "images"),
        copy_images=params.copy_images,
        max_pixels=params.max_pixels,
        max_rejected_fraction=params.max_rejected_fraction,
    )


def build_source(params: PrepareDatasetParams) -> Source:
    """The source with its own options, and with ``root`` and ``seed`` if it takes them.

    Raises:
        ValueError: a root is given to a source that reads no files.
    """
    name, options = params.source.name, params.source.arguments
    accepted = inspect.signature(registry.find(PACKAGE, name)).parameters
    filled: dict[str, Any] = {"root": params.root, "seed": params.seed}
    if params.root is not None and "root" not in accepted:
        raise ValueError(f"prepare_dataset.root is {str(params.root)!r}, but {name} reads no files: set it to null")
    source: Source = registry.build(
        PACKAGE, name, **{key: value for key, value in filled.items() if key in accepted}, **options
    )
    return source
