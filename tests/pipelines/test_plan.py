"""The plan of a scaled-down pipeline against what its stages write and allocate; the table of the papers' recipes."""

import ctypes
import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from safetensors.torch import save_file

from bifocal.features.extractors import Grid
from bifocal.sorters import BifocalSorter, save_sorter
from components.catalog import configurable_components
from components.extract_features.run import run as extract_features
from components.prepare_dataset.run import run as prepare_dataset
from components.train_embedding.run import run as train_embedding
from components.train_ranking_head.run import run as train_ranking_head
from components.vectorize_captions.run import run as vectorize_captions
from pipelines.commands import main
from pipelines.plan.devices import DEVICES, Limits
from pipelines.plan.make import make_plan
from pipelines.plan.plan import GB, Plan
from pipelines.plan.show import over_limits
from pipelines.plan.stages import PROCESS
from runtime import parameters

ROOT = Path(__file__).parents[2]
SMALL_NETWORK = {"channels": [8, 16, 24, 32], "stem_width": 8}
MB = 1_000_000


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A small corpus and backbone, and an embedding large enough to stand out from the memory of a process."""
    weights = tmp_path_factory.mktemp("weights") / "backbone.safetensors"
    network = Grid("resnet10t", stage=3, size=64, model_arguments=SMALL_NETWORK).backbone.network
    save_file(network.state_dict(), weights)
    encoders = {"image_encoder": {"name": "SMILEEncoder"}, "text_encoder": {"name": "SRUEncoder", "layers": 2}}
    phase = {
        "batches": {"name": "CaptionBatches", "batch_size": 150, "captions_per_image": 5},
        "loss": {"name": "HardestTripletLoss"},
        "epochs": 1,
        "learning_rate": 0.001,
        "schedule": {"name": "Constant"},
        "frozen_until": {},
    }
    overlay = {
        "prepare_dataset": {"corpus": {"name": "Scenes", "train": 30, "val": 10, "test": 10, "size": 64}},
        "extract_features": {
            "extractor": {"name": "Grid", "backbone": "resnet10t", "stage": 3, "size": 64,
                          "model_arguments": SMALL_NETWORK},
            "weights": {"name": "FromFile", "path": str(weights)},
        },
        "vectorize_captions": {"vectorizer": {"name": "Word2Vec", "dim": 100, "min_count": 1, "epochs": 1}},
        "train_embedding": {
            "model": {"name": "TwoBranchModel", "dim": 1600, **encoders},
            "phases": [phase],
            "precision": "float32",
        },
        "train_ranking_head": {
            "task": "count", "metric": "spearman", "head": {"name": "MLPHead", "hidden": 300_000},
            "loss": {"name": "SpearmanLoss"}, "surrogate": None, "sorter": "PairwiseSorter", "batch_size": 10,
            "phases": [{"epochs": 1, "learning_rate": 0.001, "schedule": "Constant", "frozen_until": {},
                        "learning_rate_factors": {}}],
        },
    }  # fmt: skip
    return parameters.merge(parameters.load(ROOT / "params.yaml"), overlay)


@pytest.fixture(scope="module")
def plan(values: dict[str, Any]) -> Plan:
    return make_plan(values, DEVICES["cpu"])


@pytest.fixture(scope="module")
def ranking_plan(values: dict[str, Any]) -> Plan:
    return make_plan(values | {"pipeline": "ranking_head"}, DEVICES["cpu"])


@pytest.fixture(scope="module")
def measured(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """Bytes of the artifact of each stage, and the growth of the process while it ran."""
    folder = tmp_path_factory.mktemp("artifacts")
    names = ("dataset", "features", "text", "sorter", "embedding", "ranking_head", "ranking_metrics")
    paths = {name: folder / name for name in names}
    for path in paths.values():
        path.mkdir()
    save_sorter(paths["sorter"], BifocalSorter(), {})
    sections = parameters.validate(values, configurable_components().values())
    results = {}
    stages: dict[str, tuple[str, Callable[..., object], tuple[str, ...]]] = {
        "prepare_dataset": ("dataset", prepare_dataset, ("dataset",)),
        "extract_features": ("features", extract_features, ("dataset", "features")),
        "vectorize_captions": ("text", vectorize_captions, ("dataset", "text")),
        "train_embedding": ("embedding", train_embedding, ("dataset", "features", "text", "sorter", "embedding")),
        "train_ranking_head": (
            "ranking_head",
            train_ranking_head,
            ("dataset", "features", "sorter", "ranking_head", "ranking_metrics"),
        ),
    }
    for stage, (artifact, run, names) in stages.items():
        before = reset_peak_memory()
        run(sections[stage], **{name: paths[name] for name in names})
        growth = status("VmHWM") - before
        files = [path for path in paths[artifact].rglob("*") if path.is_file() and "checkpoints" not in path.parts]
        results[stage] = sum(path.stat().st_size for path in files), growth
    return results


def status(name: str) -> int:
    """Return a memory size of this process, in bytes: VmRSS, or its maximum VmHWM."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def reset_peak_memory() -> int:
    """Set the maximum of the resident memory to its present value, and return it.

    Memory that other tests and stages have freed is given back first: a stage that reused it would seem to need less.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


@pytest.mark.parametrize(
    ("stage", "artifact", "tolerance"),
    [
        ("prepare_dataset", "dataset", 0.4),  # the JPEG files of drawn scenes, and the overhead of small Parquet files
        ("extract_features", "features", 0.05),
        ("vectorize_captions", "text", 0.3),  # the number of words is an estimate
        ("train_embedding", "embedding", 0.02),
    ],
)
def test_artifacts_have_the_predicted_sizes(
    plan: Plan, measured: dict[str, tuple[int, int]], stage: str, artifact: str, tolerance: float
) -> None:
    (planned,) = (planned for planned in plan.stages if planned.name == stage)
    assert planned.artifacts[artifact] == pytest.approx(measured[stage][0], rel=tolerance)


def test_training_needs_the_predicted_memory(plan: Plan, measured: dict[str, tuple[int, int]]) -> None:
    (training,) = (stage for stage in plan.stages if stage.name == "train_embedding")
    predicted = training.host - PROCESS
    assert predicted > 300 * MB
    assert predicted == pytest.approx(measured["train_embedding"][1], rel=0.25)
    assert training.steps == 1


def test_training_of_a_ranking_head_needs_the_predicted_memory(
    ranking_plan: Plan, measured: dict[str, tuple[int, int]]
) -> None:
    training = next(stage for stage in ranking_plan.stages if stage.name == "train_ranking_head")
    size, growth = measured["train_ranking_head"]
    assert training.artifacts["ranking_head"] == pytest.approx(size, rel=0.02)
    assert training.host - PROCESS == pytest.approx(growth, rel=0.3)
    assert training.steps == 3
    assert "vectorize_captions" not in {stage.name for stage in ranking_plan.stages}


def test_ranking_head_needs_labels_of_its_task(values: dict[str, Any]) -> None:
    changed = parameters.merge(values, {"pipeline": "ranking_head", "train_ranking_head": {"task": "counts"}})
    with pytest.raises(ValueError, match="task is 'counts'; did you mean 'count'"):
        make_plan(changed, DEVICES["cpu"])


def test_command_prints_tables_and_json() -> None:
    recipe = ["plan", "--recipe", str(ROOT / "recipes/papers/smile_flickr30k.yaml"), "--device", "a100"]
    printed = CliRunner().invoke(main, recipe, catch_exceptions=False).output
    for text in ("Lee et al., SCAN", "../data/f30k_precomp", "Stages on A100 (40 GB)", "75,600", "features 4.6 GB"):
        assert text in printed
    report = json.loads(CliRunner().invoke(main, [*recipe, "--json"], catch_exceptions=False).output)
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert stages["extract_features"]["artifacts"]["features"] == pytest.approx(31_014 * 36 * 2048 * 2, rel=0.02)
    assert stages["train_embedding"]["steps"] == 100 * -(-145_000 // 192)


def test_plan_names_what_a_machine_lacks(plan: Plan) -> None:
    heaviest = max(plan.stages, key=lambda stage: stage.host)
    assert list(plan.exceeded(Limits("a toy", host=heaviest.host, gpu=0, disk=10 * GB))) == []
    line, *_ = plan.exceeded(Limits("a toy", host=heaviest.host - 1, gpu=0, disk=10 * GB))
    assert line.startswith(f"{heaviest.name}: ")
    assert "of host memory" in line
    assert over_limits(plan) == []


def test_corpus_of_the_user_has_no_plan(values: dict[str, Any]) -> None:
    corpus = {"prepare_dataset": {"corpus": {"name": "ImageFolder", "root": "photos"}}}
    with pytest.raises(ValueError, match="ImageFolder: its counts depend on your files"):
        make_plan(parameters.merge(values, corpus), DEVICES["cpu"])


def test_table_has_every_recipe_of_the_papers() -> None:
    table = re.search(r"<!-- plans -->(.*)<!-- end of plans -->", (ROOT / "docs/papers.md").read_text(), re.DOTALL)
    assert table is not None
    recipes = [path.stem for path in sorted((ROOT / "recipes/papers").glob("*.yaml"))]
    assert re.findall(r"^\| `(\w+)`", table[1], re.MULTILINE) == recipes, (
        "run 'python -m pipelines plan --table docs/papers.md'"
    )
