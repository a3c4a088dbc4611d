"""From a contrastive model to the answer of promotion: heads that gain nothing are refused, the
model itself is not."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.datasets import Dataset
from bifocal.evaluation.rank_tables import ZERO_SHOT
from bifocal.features import FeatureStore
from bifocal.models import build_model, save_model
from bifocal.models.base import Model
from bifocal.models.inputs import input_identity
from bifocal.promotion.checks import zero_shot_check
from bifocal.text import TextStore
from components.evaluate.run import run as evaluate
from components.evaluate.spec import EvaluateParams
from components.export_onnx.run import run as export_onnx
from components.export_onnx.spec import ExportONNXParams
from components.extract_features.run import run as extract_features
from components.extract_features.spec import ExtractFeaturesParams
from components.register_model.run import run as register_model
from components.register_model.spec import RegisterModelParams
from components.vectorize_captions.run import run as vectorize_captions
from components.vectorize_captions.spec import VectorizeCaptionsParams
from runtime.artifacts import artifact_hash, commit, open_partial
from runtime.mlflow import stage_run
from tests.components.cluster.versions import POLICY, decide, decisions, number_of

DIM = 12
CLIP = {
    "embed_dim": DIM,
    "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 8, "layers": 1, "head_width": 8},
    "text_cfg": {"context_length": 8, "width": 8, "heads": 2, "layers": 1},
}
LENIENT = POLICY.model_copy(
    update={"floors": {"recall_sum": 0.0}, "max_drops": {}, "allow_dirty": True}
)
ANSWER = (
    "ship the contrastive model unchanged: the initialization ZeroShot without any phase of "
    "training registers it"
)


def complete(
    folder: Path, names: list[str], inputs: list[str], write: Callable[..., Mapping[str, float]]
) -> None:
    """Write artifacts as a stage does: ``write(**inputs, **outputs)``, then their manifests."""
    given = {name: folder / name for name in inputs}
    partial = {name: open_partial(folder / name, {}) for name in names}
    metrics = write(**given, **partial)
    hashes = {name: artifact_hash(path) for name, path in given.items()}
    manifest = {
        "component": "a stage",
        "code": "c0de",
        "inputs": hashes,
        "parameters": {},
        "metrics": dict(metrics),
    }
    for name in names:
        commit(partial[name], folder / name, manifest)


def save_heads(
    embedding: Path, features: Path, text: Path, change: Callable[[Model], None]
) -> Mapping[str, float]:
    """Write residual heads above the contrastive model; new ones are the identity."""
    parts = {"image_encoder": "ResidualHead", "text_encoder": "ResidualHead"}
    reference = {"name": "TwoBranchModel", "dim": DIM, **parts}
    model = build_model(reference, feature_dim=DIM, text_dim=DIM, text_format="vectors")
    change(model)
    model.config["inputs"] = input_identity(FeatureStore(features), TextStore(text))
    save_model(embedding, model)
    return {}


def disturb(model: Model) -> None:
    torch.manual_seed(1)
    state = model.state_dict()
    for name in ("image_encoder.head.layers.3.weight", "text_encoder.head.layers.3.weight"):
        torch.nn.init.normal_(state[name], std=0.5)
    model.load_state_dict(state)


def register(folder: Path, change: Callable[[Model], None]) -> int:
    """Evaluate, export and register heads above the contrastive model; return the number of their
    version."""
    both = ["features", "text"]
    complete(folder, ["embedding"], both, lambda **paths: save_heads(change=change, **paths))
    inputs = ["dataset", *both, "embedding"]
    evaluators = ["Retrieval", {"name": "Baselines", "cca_dim": 0}]
    reported = {"report": {"queries": 1, "duplicate_check": 0}, "bootstrap_resamples": 100}
    params = EvaluateParams.model_validate(
        {"seed": 1, "split": "test", "evaluators": evaluators, **reported}
    )
    complete(folder, ["metrics", "report"], inputs, lambda **paths: evaluate(params, **paths))
    exported = ExportONNXParams(seed=1, tolerance=1e-4)
    complete(folder, ["onnx"], inputs, lambda **paths: export_onnx(exported, **paths))
    registered = RegisterModelParams(seed=1, model=POLICY.model, alias=POLICY.candidate)
    (folder / "registration").mkdir(exist_ok=True)
    with stage_run("register_model", {"seed": 1, "register_model": registered.model_dump()}, {}):
        version = register_model(
            registered,
            metrics=folder / "metrics",
            onnx=folder / "onnx",
            registration=folder / "registration",
        )["version"]
    return int(version)


@pytest.fixture
def contrastive(artifacts: Path, tmp_path: Path) -> Path:
    """Artifacts: a dataset, and features and text by one contrastive model with random weights."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "dataset").symlink_to(artifacts / "dataset")
    torch.manual_seed(0)
    state = OpenClipBackbone("ViT-B-32", None, CLIP).network.state_dict()
    file = str(tmp_path / "clip.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, file)
    extraction = {
        "seed": 1,
        "extractor": {"name": "OpenClip", "tag": None, "model_arguments": CLIP},
        "weights": {"name": "FromFile", "path": file},
        "batch_size": 32,
        "images_per_file": 64,
    }
    features = ExtractFeaturesParams.model_validate(extraction)
    complete(folder, ["features"], ["dataset"], lambda **paths: extract_features(features, **paths))
    tower = {"name": "OpenClipText", "tag": None, "path": file, "model_arguments": CLIP}
    text = VectorizeCaptionsParams.model_validate({"seed": 1, "vectorizer": tower})
    complete(folder, ["text"], ["dataset"], lambda **paths: vectorize_captions(text, **paths))
    return folder


@pytest.mark.slow
def test_heads_without_a_gain_are_refused_and_the_contrastive_model_is_promoted(
    store: str, contrastive: Path
) -> None:
    heads = register(contrastive, disturb)
    refused = decide(contrastive, LENIENT)
    assert not refused.promoted
    (reason,) = refused.reasons
    assert reason.startswith("over the zero-shot model, the gain in the recall sum is")
    assert reason.endswith(ANSWER)
    assert decisions(heads)[0]["promotion.reasons"].endswith(ANSWER)
    assert number_of(POLICY.champion) is None
    unchanged = register(contrastive, lambda model: None)
    assert unchanged == heads + 1
    promoted = decide(contrastive, LENIENT)
    assert promoted.reasons == []
    assert number_of(POLICY.champion) == unchanged
    assert (contrastive / "onnx/contrastive.json").is_file()
    checks = {check["name"]: check for check in promoted.record["checks"]}
    assert checks["zero_shot"]["value"] == 0


def ranks_of(dataset: Dataset, misses: int) -> pd.DataFrame:
    """Return ranks of both directions; the first ``misses`` queries of each miss all K."""
    images, captions = dataset.split("test").images, dataset.split("test").captions
    tables = []
    for direction, rows, query in (
        ("caption_retrieval", images, "image_id"),
        ("image_retrieval", captions, "caption_id"),
    ):
        keys = {
            "direction": direction,
            "query": rows[query].astype(str),
            "image_id": rows["image_id"],
            "content": "c",
        }
        ranks = [99.0 if number < misses else 0.0 for number in range(len(rows))]
        tables.append(pd.DataFrame({**keys, "protocol": "full", "rank": ranks}))
    return pd.concat(tables, ignore_index=True)


def test_a_clear_gain_over_the_zero_shot_model_passes(dataset: Dataset) -> None:
    images = set(dataset.split("test").images["image_id"])

    def check(
        own: pd.DataFrame, floor: pd.DataFrame, among: set[str] = images
    ) -> tuple[float | None, str]:
        named = floor.assign(direction=ZERO_SHOT + floor["direction"])
        ranks = pd.concat([own, named])
        result = zero_shot_check(ranks, among, [1, 5, 10], 1.0, 0.05, seed=1)
        assert result is not None
        return result.value, result.reason

    value, reason = check(ranks_of(dataset, 0), ranks_of(dataset, 25))
    assert reason == ""
    assert value == pytest.approx(3 * 50 + 3 * 25)  # of 50 images and 100 captions
    assert ANSWER in check(ranks_of(dataset, 24), ranks_of(dataset, 25))[1]
    assert ANSWER in check(ranks_of(dataset, 26), ranks_of(dataset, 25))[1]
    assert (
        check(ranks_of(dataset, 25), ranks_of(dataset, 25))[1] == ""
    )  # it is the contrastive model
    folds = ranks_of(dataset, 0).assign(protocol="1k")
    assert "was not measured: " in check(folds, ranks_of(dataset, 25))[1]
    part = ranks_of(dataset, 25)[1:]
    assert check(ranks_of(dataset, 0), part)[1].startswith(
        "149 of 150 queries have zero-shot ranks; "
    )
    assert zero_shot_check(ranks_of(dataset, 0), images, [1], 1.0, 0.05, seed=1) is None
