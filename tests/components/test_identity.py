"""Identity of components: import closures, complete and without code that does not run, and
versions of packages."""

import importlib.metadata
import re
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from bifocal.durable.sources import SourceFiles
from components.catalog import all_components, pipeline_components
from runtime import identity
from runtime.identity import INFRASTRUCTURE, sources

ROOT = Path(__file__).parents[2]
FILES = {
    "bifocal/__init__.py": "",
    "bifocal/lazy.py": "from importlib import import_module",
    "bifocal/losses/__init__.py": "from bifocal.losses.triplet import Triplet",
    "bifocal/losses/triplet.py": "import torch.nn as nn\nclass Triplet: pass",
    "bifocal/text/__init__.py": (
        "from typing import TYPE_CHECKING\nfrom bifocal.lazy import x\n"
        "if TYPE_CHECKING:\n    from bifocal.text.store import Store\n    from "
        "bifocal.text.other import Other\n"
        "else:\n    import numpy\n"
    ),
    "bifocal/text/store.py": "",
    "bifocal/text/other.py": "",
    "bifocal/report/__init__.py": "",
    "bifocal/report/html.py": "def render():\n    import jinja2\n    from bifocal.report import plots",
    "bifocal/report/plots.py": "import os, matplotlib",
    "bifocal/report/style.css": "",
    "bifocal/report/README.md": "",
    "bifocal/progress.py": "import rich",
    "components/__init__.py": "",
    "components/train/__init__.py": "",
    "components/train/README.md": "",
}
COMMON = {
    "bifocal/__init__.py",
    "components/__init__.py",
    "components/train/__init__.py",
    "components/train/run.py",
}


@pytest.mark.parametrize(
    ("text", "files", "packages"),
    [
        ("import os, bifocal.progress", set(), set()),
        (
            "def run():\n    import bifocal.losses.triplet",
            {"losses/__init__.py", "losses/triplet.py"},
            {"torch"},
        ),
        ("LOSSES = 'bifocal.losses'", {"losses/__init__.py", "losses/triplet.py"}, {"torch"}),
        ("'of bifocal.losses, in prose'", set(), set()),
        (
            "from bifocal.text import Store",
            {"text/__init__.py", "lazy.py", "text/store.py"},
            {"numpy"},
        ),
        (
            "from bifocal.report import html",
            {"report/__init__.py", "report/html.py", "report/plots.py", "report/style.css"},
            {"jinja2", "matplotlib"},
        ),
    ],
)
def test_closure_follows_imports_strings_and_deferred_names(
    text: str, files: set[str], packages: set[str], tmp_path: Path
) -> None:
    for name, content in {**FILES, "components/train/run.py": f"import bifocal\n{text}\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    closure = SourceFiles(tmp_path, INFRASTRUCTURE).closure(["components.train.run"])
    assert set(closure.files) == COMMON | {f"bifocal/{file}" for file in files}
    assert set(closure.packages) == packages


def test_the_report_is_code_of_evaluate_alone() -> None:
    users = [
        stage.name
        for stage in pipeline_components()
        if "bifocal/report/style.css" in sources(stage).files
    ]
    assert users == ["evaluate"]


@pytest.mark.parametrize(
    ("stage", "package"),
    [
        ("prepare_dataset", "bifocal/text"),
        ("pretrain_sorter", "bifocal/losses"),
        ("extract_features", "bifocal/losses"),
        ("vectorize_captions", "bifocal/losses"),
        ("train_embedding", "bifocal/evaluation"),
        ("export_onnx", "bifocal/losses"),
    ],
)
def test_a_stage_does_not_depend_on_the_code_of_another(stage: str, package: str) -> None:
    assert not [
        file for file in sources(all_components()[stage]).files if file.startswith(f"{package}/")
    ]


def test_distributed_training_depends_on_the_code_that_its_nodes_run() -> None:
    components = all_components()
    own, nodes = components["train_distributed"], components["train_embedding"]
    assert set(sources(nodes).files) < set(sources(own).files)


@pytest.mark.parametrize(
    "stage", [stage.name for stage in pipeline_components() if not stage.side_effects]
)
def test_a_cached_stage_reads_nothing_from_the_registry(stage: str) -> None:
    """A champion, for example, is not a dependency: a cached report would compare with a previous
    one."""
    files = sources(all_components()[stage]).files
    imported = {
        name
        for file in files
        for names in re.findall(r"from runtime\.mlflow import (.+)", (ROOT / file).read_text())
        for name in names.split(", ")
    }
    assert imported <= {"log_figure", "log_files", "log_metrics"}


@pytest.mark.parametrize("stage", [stage.name for stage in pipeline_components()])
def test_every_imported_package_has_an_installed_and_a_pinned_version(stage: str) -> None:
    component = all_components()[stage]
    names = identity.packages(component)
    assert "none" not in identity.installed_versions(names).values()
    pins = identity.pinned_versions(names, component.image)
    assert "none" not in pins.values(), pins


def test_distributions_are_those_that_have_the_packages() -> None:
    known = {
        name: {entry.lower() for entry in entries}
        for name, entries in packages_distributions().items()
    }
    names = {name for component in pipeline_components() for name in identity.packages(component)}
    for name in names:
        assert known[name] & set(identity.DISTRIBUTIONS.get(name, (name,))), name


def test_an_upgrade_changes_the_versions_of_the_stages_that_import_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def versions() -> dict[str, dict[str, str]]:
        return {
            stage.name: identity.installed_versions(identity.packages(stage))
            for stage in pipeline_components()
        }

    before, version = versions(), importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "99.0+cpu" if name == "torch" else version(name)
    )
    assert identity.installed_versions(["torch"])["torch"] == "99.0"
    changed = {name for name, found in versions().items() if found != before[name]}
    assert changed == {stage.name for stage in pipeline_components()} - {
        "prepare_dataset",
        "register_model",
    }


def test_a_new_pin_changes_the_key_of_the_image_alone(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "gpu.txt").write_text(
        "torch==2.15.0 \\\n    --hash=x\nonnxruntime-gpu==1.2 ; x\n"
    )
    pins = identity.pinned_versions(["torch", "onnxruntime", "PIL"], "gpu", tmp_path)
    assert pins == {"torch": "2.15.0", "onnxruntime": "1.2", "PIL": "none"}
