"""``python -m pipelines new`` and ``--project``: files of a project that fit its images."""

import string
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3
import click
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from PIL import Image

from bifocal.datasets import read_dataset
from components.catalog import configurable_components
from components.prepare_dataset.run import run as prepare_dataset
from pipelines.commands import main
from pipelines.commands.project import _name, _policy, _recipe
from pipelines.kubeflow import resources, schedule
from pipelines.local.runner import LocalRun
from pipelines.policies import PROMOTION, load_promotion
from runtime import parameters
from runtime.mlflow import create_pipeline_run
from tests.pipelines.compiled import ROOT, VALUES
from tests.pipelines.local.reading_engine import ReadingEngine


def none_at_hand(weights: Path | None) -> None:
    raise FileNotFoundError("no network")


COLORS = ("red", "blue", "green", "white", "black")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def write_photos(folder: Path, count: int = 20) -> Path:
    folder.mkdir(parents=True)
    rows = ["image,caption"]
    for number in range(count):
        Image.effect_noise((40, 30), 20 + number).save(folder / f"{number}.png")
        rows.append(f"{number}.png,a {COLORS[number % 5]} thing {number}")
    (folder / "captions.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with params.yaml, without weights and a network."""
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIFOCAL_WEIGHTS", raising=False)
    monkeypatch.setattr("pipelines.app.training.recipe.small_at_hand", none_at_hand)
    return tmp_path


def test_a_project_has_a_recipe_a_policy_and_schedules_that_fit_its_images(here: Path) -> None:
    photos = write_photos(here.parent / f"{here.name}-photos")
    done = invoke("new", "toys", "--images", str(photos))
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-4:] == [
        "Next:",
        "  python -m pipelines run --project toys",
        "  bifocal serve --model models:/toys@champion",
        "  python -m pipelines run --project toys --flow retrain",
    ]
    folder = Path("projects/toys")
    assert sorted(file.name for file in folder.iterdir()) == [
        "corrections.csv",
        "promotion.yaml",
        "recipe.yaml",
        "retention.yaml",
        "schedules.yaml",
    ]
    values = parameters.load(Path("params.yaml"), [folder / "recipe.yaml"])
    sections = parameters.validate(values, configurable_components().values())
    assert values["prepare_dataset"]["corpus"] == {
        "name": "ImageFolder",
        "root": str(photos),
        "corrections": "projects/toys/corrections.csv",
    }
    assert values["register_model"]["model"] == "toys"
    (here / "dataset").mkdir()
    counts = prepare_dataset(sections["prepare_dataset"], dataset=here / "dataset")  # type: ignore[arg-type]
    policy = load_promotion(folder / "promotion.yaml")
    assert 2 <= policy.min_images <= counts["images_test"]
    assert (policy.model, policy.allow_dirty, set(policy.floors)) == ("toys", True, {"recall_sum"})
    assert "pointing" not in policy.max_drops
    declared = schedule.load(folder / "schedules.yaml")
    assert {file for entry in declared.values() for file in entry.recipes} == {
        "projects/toys/recipe.yaml"
    }

    again = invoke("new", "toys", "--images", str(photos))
    assert "projects/toys exists" in str(again.exception)
    assert "projects/toys exists" not in (folder / "recipe.yaml").read_text()


@pytest.mark.slow
def test_a_project_of_a_cluster_has_addresses_and_no_path_of_this_machine(
    here: Path, s3: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_photos(here / "photos", 40)
    for file in photos.iterdir():
        boto3.client("s3").upload_file(str(file), "bucket", f"products/{file.name}")
    done = invoke("new", "products", "--images", "s3://bucket/products", "--cluster")
    assert done.exit_code == 0, done.output
    assert (
        "  python -m pipelines schedule apply --project products --images images.json"
        in done.output.splitlines()
    )
    folder = Path("projects/products")
    text = "".join(file.read_text() for file in folder.iterdir())
    assert str(here) not in text
    values = parameters.load(Path("params.yaml"), [folder / "recipe.yaml"])
    assert values["extract_features"]["weights"] == "Pretrained"
    assert values["prepare_dataset"]["corpus"]["root"] == "s3://bucket/products"
    sections = parameters.validate(values, configurable_components().values())
    assert list(sections["prepare_dataset"].local_files()) == []
    monkeypatch.setenv("KFP_NAMESPACE", "team")
    cluster = resources.load(overlays=[folder / "cluster.yaml"])
    assert not cluster.push
    own = "s3://bucket/team/bifocal-products"
    assert (cluster.pipeline_root, cluster.checkpoints) == (f"{own}/runs", f"{own}/checkpoints")
    assert cluster.trainer.folder == f"{own}/train_jobs"
    assert cluster.monitoring.folder == f"{own}/monitoring"
    assert not load_promotion(folder / "promotion.yaml").allow_dirty
    compiled = invoke("compile", "--project", "products", "--revision", "a" * 40)
    assert compiled.exit_code == 0, compiled.output
    pipeline = Path("pipeline.yaml").read_text()
    for part in (
        "s3://bucket/products",
        "projects/products/promotion.yaml",
        "bifocal-products/checkpoints",
    ):
        assert part in pipeline

    for images, outcome in (
        (str(photos), "root: photos"),
        (str(here.parent), "a cluster cannot read"),
    ):
        write_photos(here.parent / f"{here.name}-{len(images)}")
        done = invoke("new", f"p{len(images)}", "--images", images, "--cluster")
        found = "".join(file.read_text() for file in Path("projects").glob(f"p{len(images)}/*"))
        assert outcome in f"{found}{done.exception}"


def test_every_command_with_files_of_a_project_takes_one() -> None:
    own = {"recipes", "recipe", "policy", "policy_file", "overlays", "folder"}
    for name, command in main.commands.items():
        options = {parameter.name for parameter in command.params}
        assert ("project" in options) == bool(options & own or name in ("compare", "status")), name


@pytest.mark.parametrize(
    "command", ["run", "compile", "promote", "schedule diff", "clean", "render"]
)
def test_an_unknown_project_is_an_error_with_the_known_ones(command: str, here: Path) -> None:
    (here / "projects" / "toys").mkdir(parents=True)
    (here / "projects" / "toys" / "recipe.yaml").write_text("seed: 2\n")
    done = invoke(*command.split(), "--project", "tois")
    assert done.exit_code == 2
    for part in (
        "projects/tois/recipe.yaml does not exist",
        "projects here: toys",
        "new tois --images DIR",
    ):
        assert part in " ".join(done.output.split())


@given(
    name=st.text(
        st.sampled_from(string.ascii_letters + string.digits + "-_./% äß"), min_size=1, max_size=12
    )
)
def test_names_of_projects_are_names_of_folders_models_and_schedules(name: str) -> None:
    try:
        accepted = _name(None, None, name)  # type: ignore[arg-type]
    except click.BadParameter:
        return
    assert Path(accepted).name == accepted
    values = {"model": accepted, "max_drops": {}, "floors": {"recall_sum": 1.0}}
    assert load_promotion.__globals__["PromotionPolicy"].model_validate(values).model == accepted
    assert not schedule.prefix_of(accepted).startswith(schedule.prefix_of(None))


@given(images=st.integers(0, 100_000), boxes=st.booleans(), dirty=st.booleans())
def test_the_policy_of_any_images_is_valid_and_asks_for_images_that_there_are(
    images: int, boxes: bool, dirty: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    captions = pd.DataFrame({"image_id": range(images)})
    split = SimpleNamespace(captions=captions, phrases=[1] if boxes else [])
    dataset: Any = SimpleNamespace(split=lambda name: split)
    file = tmp_path_factory.mktemp("policy") / "promotion.yaml"
    file.write_text(_policy("toys", dataset, allow_dirty=dirty), encoding="utf-8")
    policy = load_promotion(file)
    assert 2 <= policy.min_images <= max(2, images)
    assert all(4.0 <= drop <= 64.0 for drop in policy.max_drops.values())
    chance = sum(200 * min(1, k / max(2, images)) for k in (1, 5, 10))
    assert chance < policy.floors["recall_sum"] < 600
    assert ("pointing" in policy.max_drops, policy.allow_dirty) == (boxes, dirty)


def test_a_policy_without_optional_keys_has_the_values_of_the_file(tmp_path: Path) -> None:
    default = load_promotion()
    short = {name: getattr(default, name) for name in ("model", "max_drops", "floors")}
    (tmp_path / "promotion.yaml").write_text(parameters.dump_yaml(short))
    expected = default.model_copy(update={"min_images": 500})
    assert load_promotion(tmp_path / "promotion.yaml") == expected
    assert PROMOTION.is_file()


@given(st.data())
def test_a_recipe_holds_exactly_what_differs_from_params_yaml(data: st.DataObject) -> None:
    changed = {"register_model": {"model": data.draw(st.sampled_from(["bifocal", "toys"]))}}
    size = data.draw(st.integers(1, 64))
    changed["extract_features"] = {
        "batch_size": size,
        "extractor": {"name": "Grid", "backbone": "resnet18", "size": size},
    }
    values = parameters.merge(VALUES, changed)
    text = _recipe(values, "because")
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        recipe = parameters.read_yaml(Path(file.name))
    assert parameters.merge(VALUES, recipe) == values
    assert "seed" not in recipe
    assert ("register_model" in recipe) == (changed["register_model"]["model"] == "toys")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--runner", "cluster"),
        ("run", "--runner", "cluster", "--flow", "refresh"),
        ("schedule", "apply"),
    ],
)
def test_a_cluster_trains_drawn_scenes_only_on_purpose(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KFP_ENDPOINT", raising=False)
    monkeypatch.chdir(ROOT)
    assert (
        "would train drawn scenes: name your images by --project or --recipe, or give --demo"
        in str(invoke(*arguments).exception)
    )
    with patch("pipelines.commands.cluster.check_cluster"):
        for more in (["--demo"], ["--recipe", "tests/small.yaml"])[
            : 1 if arguments[0] == "schedule" else 2
        ]:
            assert "KFP_ENDPOINT is not set" in str(invoke(*arguments, *more).exception)
    if arguments[-1] == "cluster":
        with patch("pipelines.commands.cluster.check_cluster"):
            assert "KFP_ENDPOINT" in str(invoke(*arguments, "--flow", "clean").exception)


@pytest.mark.slow
def test_a_project_on_s3_is_prepared_on_this_machine(
    here: Path, s3: None, mlflow_store: str
) -> None:
    for file in write_photos(here / "photos").iterdir():
        boto3.client("s3").upload_file(str(file), "bucket", f"products/{file.name}")
    assert invoke("new", "toys", "--images", "s3://bucket/products").exit_code == 0
    engine = ReadingEngine()
    with patch("pipelines.local.engine.HostEngine", lambda environment: engine):
        done = invoke("run", "--project", "toys")
    assert done.exit_code == 0, done.output
    assert not {"fetch", "push"} & set(engine.started)
    dataset = read_dataset(here / "runs" / "kubeflow" / "toys" / "prepare-dataset" / "dataset")
    assert len(dataset.images) == 20
    assert dataset.image_address == "s3://bucket/products"


@pytest.mark.slow
def test_a_stopped_run_ends_its_parent_in_the_experiment_of_the_project(
    here: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_photos(here.parent / f"{here.name}-photos")
    assert invoke("new", "toys", "--images", str(photos)).exit_code == 0
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "toys")

    def stop(local: LocalRun) -> None:
        create_pipeline_run(local.run_id, name="toys train")
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalRun, "execute", stop)
    assert invoke("run", "--project", "toys").exit_code != 0
    client = MlflowClient(mlflow_store)
    experiment = client.get_experiment_by_name("toys")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    (parent,) = client.search_runs([experiment.experiment_id])
    assert (parent.info.run_name, parent.info.status) == ("toys train", "FAILED")
