"""How register_model works."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import onnxruntime
import pandas
import PIL

from components.register_model.serving import Embedder
from components.register_model.spec import RegisterModelParams
from runtime.artifacts import artifact_hash, read_manifest, write_json
from runtime.mlflow import register

ROOT = Path(__file__).parents[2]
CARD, LINEAGE = "MODEL_CARD.md", "## Data, parameters and lineage"
SERVED_CODE = (
    "components/register_model/serving.py",
    "bifocal/datasets/images.py",
    "bifocal/text/tokens.py",
    "bifocal/text/vocabulary.py",
)


def run(params: RegisterModelParams, *, metrics: Path, onnx: Path, registration: Path) -> dict[str, float]:
    """Add a version to the registered model; write its name and number."""
    example = pandas.DataFrame({"text": ["a dog runs on the grass", "two red circles above a square"]})
    embedder = Embedder(onnx)
    # The package is small and the requirements few: whoever serves the model needs neither torch nor bifocal.
    with TemporaryDirectory() as folder:
        version = register(
            params.model,
            data=onnx,
            code=_copy_code(Path(folder)),
            loader="components.register_model.serving",
            example=example,
            prediction=embedder.predict(example),
            columns=embedder.columns,
            requirements=[f"{package.__name__}=={package.__version__}" for package in (numpy, onnxruntime, pandas)]
            + [f"pillow=={PIL.__version__}"],
            tags=_lineage(metrics, onnx),
            alias=params.alias,
            evaluation=metrics,
            description=_description(metrics / CARD),
        )
    write_json(registration / "registration.json", {"model": params.model, "version": version, "alias": params.alias})
    return {"version": version}


def _description(card: Path) -> str:
    """The model card without its lineage: MLflow's databases keep 5,000 signs. The whole is with the evidence."""
    return card.read_text(encoding="utf-8").partition(LINEAGE)[0] + f"The whole card is the run's evidence/{CARD}.\n"


def _copy_code(folder: Path) -> list[Path]:
    for path in SERVED_CODE:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return sorted(folder.iterdir())


def _lineage(metrics: Path, onnx: Path) -> dict[str, str]:
    """Hashes of every artifact that the version comes from, and the figures that it reached."""
    hashes = {"metrics": artifact_hash(metrics), "onnx": artifact_hash(onnx)}
    hashes |= read_manifest(metrics)["inputs"] | read_manifest(onnx)["inputs"]
    report = json.loads((metrics / "metrics.json").read_text())
    figures = {
        f"{direction}.{name.replace('@', '_at_')}": f"{figure:.2f}"
        for direction in ("caption_retrieval", "image_retrieval")
        for name, figure in report[direction].items()
    }
    return {f"hash.{name}": digest for name, digest in hashes.items()} | figures
