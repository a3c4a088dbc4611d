"""Keys of components: package versions that are installed here, or pinned for an image."""

import importlib.metadata
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from components.catalog import all_components, pipeline_components
from runtime import identity


@pytest.mark.parametrize("stage", [stage.name for stage in pipeline_components()])
def test_every_imported_package_has_an_installed_and_a_pinned_version(stage: str) -> None:
    component = all_components()[stage]
    names = identity.packages(component)
    assert "none" not in identity.installed_versions(names).values()
    pins = identity.pinned_versions(names, component.image)
    assert "none" not in pins.values(), pins


def test_distributions_are_those_that_have_the_packages() -> None:
    known = {name: {entry.lower() for entry in entries} for name, entries in packages_distributions().items()}
    names = {name for component in pipeline_components() for name in identity.packages(component)}
    for name in names:
        assert known[name] & set(identity.DISTRIBUTIONS.get(name, (name,))), name


def test_an_upgrade_changes_the_key_of_the_stages_that_import_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> dict[str, str]:
        return {component.name: identity.installed_key(component) for component in pipeline_components()}

    before, version = keys(), importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0+cpu" if name == "torch" else version(name))
    assert identity.installed_versions(["torch"])["torch"] == "99.0"
    changed = {name for name, key in keys().items() if key != before[name]}
    assert changed == {stage.name for stage in pipeline_components()} - {"prepare_dataset", "register_model"}


def test_a_new_pin_changes_the_key_of_the_image_alone(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "gpu.txt").write_text("torch==2.15.0 \\\n    --hash=x\nonnxruntime-gpu==1.2 ; x\n")
    pins = identity.pinned_versions(["torch", "onnxruntime", "PIL"], "gpu", tmp_path)
    assert pins == {"torch": "2.15.0", "onnxruntime": "1.2", "PIL": "none"}
