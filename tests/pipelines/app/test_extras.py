"""The error of a missing package names extras that install it."""

import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from bifocal import version
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
        ("index", "onnx", "onnx"),
    ],
)
def test_the_named_extras_have_the_package(command: str, module: str, package: str) -> None:
    message = missing_extra(command, ModuleNotFoundError(name=module)).message
    extras = re.search(r"pip install '[^']*\[(.*)\]'", message)
    assert extras is not None
    assert package in packages(extras[1])


def test_a_command_installs_from_where_the_package_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(version.__file__).parents[1]
    monkeypatch.chdir(root)
    assert version.install("search", "small") == "pip install '.[search,small]'"
    monkeypatch.chdir(tmp_path)
    assert version.install("heic") == f"pip install '{root}[heic]'"
    monkeypatch.setattr(version, "__file__", str(tmp_path / "site-packages/bifocal/version.py"))
    wheel = tmp_path / "with space" / "bifocal_vse.whl"
    wheel.parent.mkdir()
    record = SimpleNamespace(read_text=lambda name: json.dumps({"url": wheel.as_uri()}))
    monkeypatch.setattr(version, "distribution", lambda name: record)
    gone = "install the extras heic of the clone or wheel that this package came from"
    assert version.install("heic") == gone
    wheel.touch()
    assert version.install("heic") == f"pip install '{wheel}[heic]'"
    record.read_text = lambda name: None
    assert version.install("heic") == gone


def test_each_named_extra_exists() -> None:
    root, found = Path(version.__file__).parents[1], set[str]()
    for folder in ("bifocal", "components", "pipelines", "runtime"):
        for file in (root / folder).rglob("*.py"):
            assert "pip install 'bifocal-vse" not in file.read_text(), file
            for named in re.findall(r"\binstall\((['\"][^)]*)\)", file.read_text()):
                found |= set(re.findall(r"\w+", named))
    assert {"small", "clip", "faiss"} <= found <= EXTRAS.keys()
