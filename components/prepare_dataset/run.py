"""Act of the stage ``prepare_dataset``."""

from pathlib import Path

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
    name, root = params.source.name, {} if params.root is None else {"root": params.root}
    if params.root is not None and not registry.accepts(PACKAGE, name, "root"):
        raise ValueError(f"prepare_dataset.root is {str(params.root)!r}, but {name} reads no files: set it to null")
    source: Source = registry.build(PACKAGE, params.source, seed=params.seed, **root)
    return source
