"""Trainings of recipes with several seeds: equal stages run once, and finished trainings are
kept."""

from pathlib import Path

import pytest
import yaml

from pipelines import seeds
from pipelines.app import stages as running
from runtime.artifacts import commit_all, open_partial
from runtime.parameters import load
from runtime.stage import Job

ROOT = Path(__file__).parents[2]
SMALL = yaml.safe_load((ROOT / "tests" / "small.yaml").read_text())
SHARED = ["prepare_dataset", "extract_features", "vectorize_captions"]


def write_recipe(name: str, loss: dict[str, object]) -> Path:
    """Write a recipe with this loss."""
    values = yaml.safe_load(yaml.safe_dump(SMALL))
    values["train_embedding"]["phases"][0]["loss"] = loss
    file = Path("recipes", "mine", f"{name}.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the stages that ran, each with its run folder; a stage writes empty artifacts with its
    fingerprint."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text((ROOT / "params.yaml").read_text())
    ran: list[tuple[str, str]] = []

    def run(job: Job) -> None:
        folder = next(iter(job.outputs.values())).parents[1]
        ran.append((job.component.name, folder.relative_to("runs/mine").as_posix()))
        partials = {path: open_partial(path, job.fingerprint()) for path in job.outputs.values()}
        for name, partial in zip(job.outputs, partials.values(), strict=True):
            (partial / "file").write_text(f"{name} {job.fingerprint()['parameters']}")
        commit_all(partials, job.fingerprint() | {"metrics": {}})

    monkeypatch.setattr(running, "run_stage", run)
    return ran


def train(recipes: list[Path], count: int = 2) -> list[seeds.System]:
    """Train what is missing."""
    systems = [seeds.read_system(recipe, count) for recipe in recipes]
    seeds.train_missing(systems)
    return systems


@pytest.mark.slow
def test_equal_stages_run_once_and_finished_ones_are_kept(stages: list[tuple[str, str]]) -> None:
    infonce = write_recipe("infonce", {"name": "InfoNCELoss", "temperature": 0.07})
    triplet = write_recipe("triplet", {"name": "HardestTripletLoss", "margin": 0.2})
    systems = train([infonce, triplet])
    last = ["train_embedding", "evaluate"]
    assert sorted(stage for stage, folder in stages if folder == "infonce/seed-1") == sorted(
        [*SHARED, *last]
    )
    others = ["triplet/seed-1", "infonce/seed-2", "triplet/seed-2"]
    assert stages[5:] == [(stage, folder) for folder in others for stage in last]
    assert load(Path("runs/mine/triplet/seed-2/params.yaml"))["train_embedding"]["seed"] == 2
    assert load(Path("runs/mine/triplet/seed-2/params.yaml"))["seed"] == 1
    assert Path("runs/mine/triplet/seed-2/artifacts/dataset/file").read_text().startswith("dataset")
    assert [row[0] for row in seeds.differing(systems)] == [
        f"train_embedding.phases.0.loss.{key}" for key in ("margin", "name", "temperature")
    ]
    stages.clear()
    train([infonce, triplet])
    assert stages == []
    train([infonce, write_recipe("triplet", {"name": "HardestTripletLoss", "margin": 0.3})], 3)
    assert [folder for stage, folder in stages if stage == "train_embedding"] == [
        "triplet/seed-1",
        "triplet/seed-2",
        "infonce/seed-3",
        "triplet/seed-3",
    ]
    assert not {*SHARED} & {stage for stage, _ in stages}


def test_trainings_of_make_repro_and_damaged_links_are_found(stages: list[tuple[str, str]]) -> None:
    recipe = write_recipe("infonce", {"name": "InfoNCELoss"})
    system = seeds.read_system(recipe, 1)
    repro = Path("runs/mine/infonce")
    (repro / "artifacts").mkdir(parents=True)
    (repro / "params.yaml").write_text(yaml.safe_dump(dict(system.values)))
    running.run_stages(repro, dict(system.values), seeds._stages(system.values))
    stages.clear()
    seeds.train_missing([system])
    assert stages == []
    (repro / "artifacts").rename(repro / "moved")
    seeds.train_missing([system])
    assert sorted(stage for stage, _ in stages) == sorted([*SHARED, "train_embedding", "evaluate"])


def test_an_edited_loss_of_the_user_trains_again(
    stages: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Path("losses_of_a_test.py")
    module.write_text("from torch import nn\n\n\nclass MyLoss(nn.Module):\n    factor = 1\n")
    monkeypatch.syspath_prepend(Path.cwd())
    recipe = write_recipe("mine", {"name": "losses_of_a_test:MyLoss"})
    train([recipe], 1)
    stages.clear()
    module.write_text("# comment\n" + module.read_text())
    train([recipe], 1)
    assert stages == []
    module.write_text(module.read_text().replace("factor = 1", "factor = 2"))
    train([recipe], 1)
    assert [stage for stage, _ in stages] == ["train_embedding"]


def test_recipes_without_retrieval_and_folders_without_results_are_refused(
    stages: list[tuple[str, str]],
) -> None:
    ranking = Path("ranking.yaml")
    ranking.write_text("pipeline: ranking_head\n")
    with pytest.raises(
        ValueError, match=r"ranking.yaml has the pipeline ranking_head, which ranks no captions"
    ):
        seeds.read_system(ranking, 1)
    with pytest.raises(
        FileNotFoundError, match=r"has no artifacts/metrics/ranks.parquet: train the run first"
    ):
        seeds.read_system(Path.cwd(), 1)
    recipe = write_recipe("mine", {"name": "InfoNCELoss"})
    with pytest.raises(ValueError, match=r"two recipes have one run folder, runs/mine/mine"):
        seeds.train_missing(2 * [seeds.read_system(recipe, 1)])
