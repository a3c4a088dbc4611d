"""Registration of exported ONNX graphs, with the modules that serve them."""

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import onnxruntime
import pandas
import PIL

from bifocal.serving.pyfunc import open_model
from bifocal.serving.text import ARRAYS
from bifocal.text.transformer.tokenizer import TOKENIZER
from runtime.artifacts import artifact_hash, read_manifest
from runtime.closure import source_path
from runtime.mlflow.registry import register, reuse_version

ROOT = Path(__file__).parents[2]
SERVED_CODE = (
    *(f"bifocal/serving/{path.name}" for path in sorted(source_path(ROOT, "bifocal/serving").glob("[!_]*.py"))),
    "bifocal/datasets/image_formats.py",
    "bifocal/datasets/images.py",
    "bifocal/datasets/resizing.py",
    "bifocal/text/bag_of_words.py",
    "bifocal/text/fisher.py",
    "bifocal/text/spelling.py",
    "bifocal/text/token_means.py",
    "bifocal/text/tokens.py",
    "bifocal/text/transformer/tokenizer.py",
    "bifocal/text/vocabulary.py",
    "bifocal/text/word_means.py",
    "bifocal/text/word_vectors/wordnet.py",
    "runtime/mlflow/served_model.py",
)
"""Modules that a served model needs. Without ``__init__.py`` they form namespace packages, so that an installed bifocal
takes precedence in a process that has one."""


def register_exported(
    model: str, alias: str, *, graphs: Path, evaluation: Path, tags: Mapping[str, str], description: str
) -> int:
    """Register the graphs as a new version, unless a version has them already; return its number.

    ``tags`` are results to show beside the version; the hash of every artifact behind it is added. The description is
    the model card in Markdown.
    """
    registered = reuse_version(model, alias, artifact_hash(graphs), evaluation, artifact_hash(evaluation))
    if registered is not None:
        return registered
    opened = open_model(graphs)
    example = opened.example()
    # Log the few modules that serving needs: a server then needs neither torch nor an installed bifocal.
    with TemporaryDirectory() as folder:
        return register(
            model,
            data=graphs,
            code=_copy_code(Path(folder)),
            loader="runtime.mlflow.served_model",
            example=example,
            prediction=opened.predict(example),
            columns=opened.columns,
            requirements=_requirements(graphs),
            tags=_lineage(evaluation, graphs) | dict(tags),
            alias=alias,
            evaluation=evaluation,
            scores=read_manifest(evaluation)["metrics"],
            dataset=read_manifest(evaluation)["inputs"]["dataset"],
            description=description,
        )


def _requirements(graphs: Path) -> list[str]:
    """Return the packages that the served modules need for these graphs, with their versions."""
    names = [f"{package.__name__}=={package.__version__}" for package in (numpy, onnxruntime, pandas)]
    subwords = [f"tokenizers=={version('tokenizers')}"] if any(graphs.rglob(TOKENIZER)) else []
    stems = ("safetensors", "snowballstemmer") if any(list(graphs.rglob(name)) for name in ARRAYS) else ()
    return [*names, f"pillow=={PIL.__version__}", *subwords, *(f"{name}=={version(name)}" for name in stems)]


def _copy_code(folder: Path) -> list[Path]:
    """Copy ``SERVED_CODE`` to ``folder``; return its top-level entries."""
    for path in SERVED_CODE:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path(ROOT, path), folder / path)
    return sorted(folder.iterdir())


def _lineage(evaluation: Path, graphs: Path) -> dict[str, str]:
    """Return the hash of every artifact behind the version, as tags."""
    hashes = {"metrics": artifact_hash(evaluation), "onnx": artifact_hash(graphs)}
    hashes |= read_manifest(evaluation)["inputs"] | read_manifest(graphs)["inputs"]
    return {f"hash.{name}": digest for name, digest in hashes.items()}
