"""dvc.yaml follows the declarations of the stages."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from components.catalog import configurable_components, pipeline_components
from components.register_model.spec import COMPONENT as REGISTER
from pipelines.dvc import PACKAGES_FILE, dvc_components, render, versions_and_code
from runtime.parameters import load

ROOT = Path(__file__).parents[2]


def test_dvc_yaml_of_the_repository_is_up_to_date() -> None:
    assert (ROOT / "dvc.yaml").read_text() == render(load(ROOT / "params.yaml"))


def test_user_paths_are_dependencies_and_a_recipe_has_its_own_outputs() -> None:
    values = load(ROOT / "params.yaml", [ROOT / "recipes/flickr8k/attention_infonce.yaml"])
    stages = yaml.safe_load(render(values, "runs/x"))["stages"]
    assert "../shared/data/flickr8k" in stages["prepare_dataset"]["deps"]
    assert stages["prepare_dataset"]["outs"] == ["runs/x/artifacts/dataset"]
    assert stages["prepare_dataset"]["wdir"] == "../.."


def test_stage_outside_the_default_pipeline_is_not_in_dvc_yaml() -> None:
    stages = yaml.safe_load(render(load(ROOT / "params.yaml")))["stages"]
    assert "train_ranking_head" in configurable_components()
    assert "train_ranking_head" not in stages


def test_a_recipe_of_a_ranking_head_gets_the_stages_of_its_pipeline() -> None:
    document = yaml.safe_load(
        render(load(ROOT / "params.yaml", [ROOT / "recipes/scenes/count.yaml"]))
    )
    names = [
        "prepare_dataset",
        "extract_features",
        "train_ranking_head",
        "export_ranking_head",
    ]
    assert list(document["stages"]) == ["packages", *names]
    assert document["metrics"] == ["artifacts/ranking_metrics/metrics.json"]


def test_a_sorter_is_a_stage_if_a_loss_reads_it() -> None:
    values = load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
    stages = yaml.safe_load(render(values))["stages"]
    assert "artifacts/sorter" in stages["train_embedding"]["deps"]
    assert stages["pretrain_sorter"]["outs"] == ["artifacts/sorter"]
    values["train_embedding"]["phases"][0]["loss"] = "HardestTripletLoss"
    stages = yaml.safe_load(render(values))["stages"]
    assert "artifacts/sorter" not in stages["train_embedding"]["deps"]
    assert "pretrain_sorter" not in stages


def test_an_unknown_pipeline_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="pipeline is 'ranking_heads'; did you mean 'ranking_head'"
    ):
        render(load(ROOT / "params.yaml") | {"pipeline": "ranking_heads"})


def test_registration_is_not_in_dvc_yaml() -> None:
    assert REGISTER in pipeline_components()
    assert "register_model" not in yaml.safe_load(render(load(ROOT / "params.yaml")))["stages"]


def test_every_artifact_has_one_writer_before_its_readers() -> None:
    written: list[str] = []
    for component in pipeline_components():
        assert set(component.inputs) <= set(written), component.name
        written += component.outputs
    assert len(set(written)) == len(written)


def test_a_dry_run_of_a_fresh_clone_lists_every_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/experiments.md says: after ``dvc repro packages``, ``dvc repro --dry --force``."""
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / ".dvc",
        tmp_path / ".dvc",
        ignore=shutil.ignore_patterns("cache", "tmp", "config.local"),
    )
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / PACKAGES_FILE).write_text(json.dumps(versions_and_code()))
    monkeypatch.chdir(tmp_path)
    with Repo() as repo:
        stages = repo.reproduce(dry=True, force=True)
    assert {stage.name for stage in stages} == {
        "packages",
        *(stage.name for stage in dvc_components(values=load(ROOT / "params.yaml"))),
    }
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [PACKAGES_FILE]
