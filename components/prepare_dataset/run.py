"""Stage prepare_dataset: run."""

from pathlib import Path

from bifocal.datasets import write_dataset
from bifocal.datasets.base import CorpusReader
from bifocal.datasets.writer import TooManyRejectedError
from bifocal.registry import build
from components.prepare_dataset.spec import PrepareDatasetParams
from runtime.s3.remote_files import address_of_copy


def run(params: PrepareDatasetParams, *, dataset: Path) -> dict[str, float]:
    """Write the dataset and return its counts."""
    reader: CorpusReader = build("bifocal.datasets.corpora", params.corpus, seed=params.seed)
    corpus = reader.read(dataset / "images")
    try:
        return write_dataset(
            dataset,
            params.corpus.name,
            corpus,
            copy_images=params.copy_images,
            max_pixels=params.max_pixels,
            max_rejected_fraction=params.max_rejected_fraction,
            image_address=address_of_copy(corpus.image_root),
        )
    except TooManyRejectedError as error:
        raise ValueError(
            f"{error}, such as --set prepare_dataset.max_rejected_fraction=0.1"
        ) from error
