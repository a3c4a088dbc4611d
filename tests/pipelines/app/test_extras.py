"""The error of a missing package names extras that install it."""

import re
import tomllib
from pathlib import Path

import pytest

from pipelines.app import missing_extra

EXTRAS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def packages(extras: str) -> set[str]:
    """Return the packages of extras, also by the extras that they name."""
    found = set()
    for line in (line for extra in extras.split(",") for line in EXTRAS[extra.strip()]):
        own = re.fullmatch(r"bifocal-vse\[(.*)\]", line)
        found |= packages(own[1]) if own else {re.split(r"[^\w-]", line)[0]}
    return found


@pytest.mark.parametrize(
    ("command", "module", "package"),
    [
        ("serve", "faiss", "faiss-cpu"),
        ("serve", "granian", "granian"),
        ("serve", "onnxruntime", "onnxruntime"),
        ("train", "torch", "torch"),
        ("index", "huggingface_hub", "huggingface-hub"),
        ("index", "tokenizers", "tokenizers"),
        ("index", "watchfiles", "watchfiles"),
    ],
)
def test_the_named_extras_have_the_package(command: str, module: str, package: str) -> None:
    message = missing_extra(command, ModuleNotFoundError(name=module)).message
    extras = re.search(r"pip install 'bifocal-vse\[(.*)\]'", message)
    assert extras is not None
    assert package in packages(extras[1])
