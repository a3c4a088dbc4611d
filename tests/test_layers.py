"""The layers, seen from outside: what a notebook and a graph compiler load."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.catalog import configurable_components

ROOT = Path(__file__).parents[1]

# A package of another layer is as good as not installed: gensim looks for boto3 by itself, and must not need it.
NOTEBOOK = """
import sys
for package in ("mlflow", "dvc", "kfp", "boto3", "pydantic"):
    sys.modules[package] = None
import bifocal
from bifocal.losses import HardestTripletLoss
from bifocal.metrics import retrieval_ranks
from bifocal.models import build_model
from bifocal.registry import registered
for package in ("datasets.corpora", "features.extractors", "text.vectorizers", "sorters", "losses", "text_encoders"):
    assert registered(f"bifocal.{package}"), package
model = build_model(
    {"name": "TwoBranchModel", "dim": 8, "image_encoder": "SMILEEncoder", "text_encoder": "GRUEncoder"},
    feature_dim=6, text_dim=5, text_format="tokens", vocabulary_size=9,
)
"""

COMPILER = """
import sys
import components.catalog
assert not {"torch", "mlflow", "pandas", "numpy"} & set(sys.modules)
"""


SERVER = """
import sys
sys.modules["torch"] = None
import bifocal.serving.pyfunc
"""


@pytest.mark.parametrize("script", [NOTEBOOK, COMPILER, SERVER], ids=["notebook", "compiler", "server"])
def test_a_process_loads_no_more_than_its_layer(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_library_names_no_stage_and_no_parameters_file() -> None:
    """A notebook user has neither stages nor params.yaml, so no message or docstring of the library names them."""
    words = re.compile(r"params\.yaml|\b(" + "|".join(configurable_components().keys() - {"evaluate"}) + r")\b(?!\()")
    lines = {
        f"{path.relative_to(ROOT)}:{number}": line
        for path in (ROOT / "bifocal").rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    }
    assert lines == {}
