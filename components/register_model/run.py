"""Stage register_model: run."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import onnxruntime
import pandas
import PIL

from bifocal.serving.pyfunc import open_model
from components.register_model.spec import RegisterModelParams
from runtime.artifacts import artifact_hash, read_manifest, write_json
from runtime.mlflow import register, reuse_version

ROOT = Path(__file__).parents[2]
CARD, LINEAGE = "MODEL_CARD.md", "## Data, parameters and lineage"
SERVED_CODE = (
    *(f"bifocal/serving/{path.name}" for path in sorted((ROOT / "bifocal/serving").glob("[!_]*.py"))),
    "bifocal/datasets/images.py",
    "bifocal/text/spelling.py",
    "bifocal/text/tokens.py",
    "bifocal/text/vocabulary.py",
    "runtime/mlflow/served_model.py",
)
"""Modules that a served model needs. Without ``__init__.py`` they form namespace packages, so that an installed bifocal
takes precedence in a process that has one."""


def run(params: RegisterModelParams, *, metrics: Path, onnx: Path, registration: Path) -> dict[str, float]:
    """Write name, number and alias of the model's version; register a new one unless this model has one already."""
    version = reuse_version(params.model, params.alias, artifact_hash(onnx), metrics, artifact_hash(metrics))
    if version is None:
        version = _register(params, metrics, onnx)
    write_json(registration / "registration.json", {"model": params.model, "version": version, "alias": params.alias})
    return {"version": version}


def _register(params: RegisterModelParams, metrics: Path, onnx: Path) -> int:
    model = open_model(onnx)
    example = model.example()
    # Log the few modules that serving needs: a server then needs neither torch nor an installed bifocal.
    with TemporaryDirectory() as folder:
        return register(
            params.model,
            data=onnx,
            code=_copy_code(Path(folder)),
            loader="runtime.mlflow.served_model",
            example=example,
            prediction=model.predict(example),
            columns=model.columns,
            requirements=[f"{package.__name__}=={package.__version__}" for package in (numpy, onnxruntime, pandas)]
            + [f"pillow=={PIL.__version__}"],
            tags=_lineage(metrics, onnx),
            alias=params.alias,
            evaluation=metrics,
            scores=read_manifest(metrics)["metrics"],
            dataset=read_manifest(metrics)["inputs"]["dataset"],
            description=_description(metrics / CARD),
        )


def _description(card: Path) -> str:
    """Return the model card without its lineage, because MLflow's databases store 5,000 characters."""
    short = card.read_text(encoding="utf-8").partition(LINEAGE)[0]
    return short + f"The complete card is the file evidence/{CARD} of the run.\n"


def _copy_code(folder: Path) -> list[Path]:
    """Copy ``SERVED_CODE`` to ``folder``; return its top-level entries."""
    for path in SERVED_CODE:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return sorted(folder.iterdir())


def _lineage(metrics: Path, onnx: Path) -> dict[str, str]:
    """Return tags: the hash of every artifact behind the version, and its recalls."""
    hashes = {"metrics": artifact_hash(metrics), "onnx": artifact_hash(onnx)}
    hashes |= read_manifest(metrics)["inputs"] | read_manifest(onnx)["inputs"]
    report = json.loads((metrics / "metrics.json").read_text())
    recalls = {
        f"{direction}.{name.replace('@', '_at_')}": f"{value:.2f}"
        for direction in ("caption_retrieval", "image_retrieval")
        for name, value in report[direction].items()
    }
    return {f"hash.{name}": digest for name, digest in hashes.items()} | recalls
