"""Layers: what a notebook and a graph compiler load, and what the tests of each layer import."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from components.catalog import configurable_components

ROOT = Path(__file__).parents[1]
LAYERS = ("bifocal", "runtime", "components", "pipelines", "benchmarks")
TESTED_LAYER = {
    "tests/bifocal": "bifocal",
    "tests/contracts": "bifocal",
    "tests/runtime": "runtime",
    "tests/components": "components",
    "tests/pipelines": "pipelines",
}

# Packages of other layers count as not installed: gensim imports boto3 if it is there, and must not
# need it.
NOTEBOOK = """
import sys
for package in ("mlflow", "dvc", "kfp", "boto3", "pydantic"):
    sys.modules[package] = None
import bifocal
from bifocal.losses import HardestTripletLoss
from bifocal.metrics import retrieval_ranks
from bifocal.models import build_model
from bifocal.registry import registered
for package in (
    "datasets.corpora", "features.extractors", "text.vectorizers", "sorters", "losses", "text_encoders", "evaluation"
):
    assert registered(f"bifocal.{package}"), package
# Each takes a second, in every process of a stage.
assert not {"sklearn", "scipy.stats", "matplotlib"} & set(sys.modules)
model = build_model(
    {"name": "TwoBranchModel", "dim": 8, "image_encoder": "SMILEEncoder", "text_encoder": "GRUEncoder"},
    feature_dim=6, text_dim=5, text_format="tokens", vocabulary_size=9,
)
"""

COMPILER = """
import sys
import components.catalog
assert not {"torch", "mlflow", "pandas", "numpy"} & set(sys.modules)
sys.modules.update(torch=None, mlflow=None)
from pathlib import Path
from pipelines.kubeflow import compile, resources
from runtime import parameters
compile.compile_pipeline(parameters.load(Path("params.yaml")), resources.load(), "a")
"""

RENDERER = """
import sys
from pathlib import Path
from pipelines import dvc
from runtime import parameters
assert dvc.render(parameters.load(Path("params.yaml")))
assert not {"torch", "mlflow", "boto3"} & set(sys.modules)
"""

SERVER = """
import sys
sys.modules.update(dict.fromkeys(["torch", "transformers", "open_clip", "sklearn", "scipy"]))
import bifocal.onnx.text.sentences
import bifocal.serving.service.app
import bifocal.serving.service.models
# Each takes half a second of the start.
assert not {"pandas", "snowballstemmer", "mlflow"} & set(sys.modules)
import bifocal.onnx.pyfunc
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [NOTEBOOK, COMPILER, RENDERER, SERVER],
    ids=["notebook", "compiler", "dvc.yaml", "server"],
)
def test_process_loads_only_its_layer(script: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("folder", TESTED_LAYER)
def test_tests_import_no_higher_layer(folder: str) -> None:
    higher = LAYERS[LAYERS.index(TESTED_LAYER[folder]) + 1 :]
    violations = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for module in imported_modules(file)
        if module.partition(".")[0] in higher
    ]
    assert violations == []


def test_tests_import_no_other_tests() -> None:
    violations = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for module in imported_modules(file)
        if module.rpartition(".")[2].startswith("test_")
    ]
    assert violations == []


def test_library_names_no_stage_and_no_parameters_file() -> None:
    """A notebook user has neither stages nor params.yaml, so no message or docstring of the library
    names them."""
    words = re.compile(
        r"params\.yaml|\b("
        + "|".join(configurable_components().keys() - {"evaluate"})
        + r")\b(?!\()"
    )
    lines = {
        f"{path.relative_to(ROOT)}:{number}": line
        for path in (ROOT / "bifocal").rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    }
    assert lines == {}


def module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes outside functions; the blocks of ``if TYPE_CHECKING`` are among them."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from module_level(child)


def test_exported_models_load_only_their_room() -> None:
    """A registered model has ``bifocal/onnx`` without other modules; only a fit imports more, in
    its functions."""
    writes_graphs = ROOT / "bifocal/onnx/int8.py"
    packages = {
        "PIL",
        "numpy",
        "onnxruntime",
        "pandas",
        "safetensors",
        "snowballstemmer",
        "tokenizers",
    }
    loaded = {
        module
        for file in {*(ROOT / "bifocal/onnx").rglob("*.py")} - {writes_graphs}
        for node in module_level(ast.parse(file.read_text()))
        for module in (
            [name.name for name in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    others = {
        module
        for module in loaded
        if module.partition(".")[0] not in packages | sys.stdlib_module_names
    }
    assert {module for module in others if not module.startswith("bifocal.onnx")} == set()


def test_no_circle_of_imports() -> None:
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for layer in LAYERS
        for file in (ROOT / layer).rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        imported = graph.setdefault(module, set())
        for node in module_level(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported.update(name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{name.name}" for name in node.names)
                imported.update(name if name in files else node.module for name in names)
        imported &= files.keys() - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle of imports: {' -> '.join(error.args[1])}")
