"""Zero-shot floor with a small contrastive model of random weights: baselines, residual heads,
their blend weight."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.evaluation import Baselines
from bifocal.evaluation.base import Subject
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.extractors import OpenClip
from bifocal.models import build_model
from bifocal.models.base import Model
from bifocal.text import TextStore
from bifocal.text.vectorizers import OpenClipText
from bifocal.text.vectorizers.base import load_vectorizer, write_text
from bifocal.training import members
from bifocal.training.initialization import ZeroShot
from bifocal.training.inputs import TrainingInputs
from bifocal.training.members import choose_blend, set_blend
from bifocal.training.validators import Recall
from bifocal.training.weights import FromFile

DIM = 12
SMALL = {
    "embed_dim": DIM,
    "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 8, "layers": 1, "head_width": 8},
    "text_cfg": {"context_length": 12, "width": 8, "heads": 2, "layers": 1},
}
COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> TrainingInputs:
    """Images of one color and noise, with one caption each; features and text of one contrastive
    model."""
    root, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    ids = [f"{name}{number}" for number in range(6) for name in COLORS]
    for image_id in ids:
        noise = random.integers(0, 60, (32, 32, 3))
        pixels = np.clip(np.array(COLORS[image_id.rstrip("012345")]) * 0.7 + noise, 0, 255).astype(
            np.uint8
        )
        Image.fromarray(pixels).save(root / f"{image_id}.png")
    splits = ["train"] * 16 + ["val"] * 8
    files = {"image_id": ids, "path": [f"{image_id}.png" for image_id in ids], "split": splits}
    images = pd.DataFrame({**files, "width": 32, "height": 32, "sha256": ids})
    texts = [f"a {image_id.rstrip('012345')} picture number {image_id[-1]}" for image_id in ids]
    captions = pd.DataFrame({"caption_id": range(len(ids)), "image_id": ids, "text": texts})
    dataset = Dataset(images, captions, pd.DataFrame({"image_id": []}), root)
    torch.manual_seed(0)
    extractor = OpenClip(tag=None, model_arguments=SMALL)
    state = {
        name: tensor.contiguous()
        for name, tensor in extractor.backbone.network.state_dict().items()
    }
    save_file(state, root / "clip.safetensors")
    digest, _ = FromFile(root / "clip.safetensors").load(extractor.backbone)
    features, text = root / "features", root / "text"
    features.mkdir()
    text.mkdir()
    metadata = {"weights": digest, **extractor.describe()}
    with FeatureWriter(features, regions=1, dim=DIM, metadata=metadata) as writer:
        write_features(NetworkFeatures(extractor, dataset, 8).read(ids), writer, total=len(ids))
    vectorizer = OpenClipText(tag=None, path=root / "clip.safetensors", model_arguments=SMALL)
    vectorizer.fit(texts, seed=0)
    write_text(text, vectorizer, list(range(len(ids))), texts)
    return TrainingInputs(dataset, FeatureStore(features), TextStore(text), load_vectorizer(text))


def heads(inputs: TrainingInputs) -> Model:
    torch.manual_seed(1)
    parts = {"image_encoder": "ResidualHead", "text_encoder": "ResidualHead"}
    return build_model(
        {"name": "TwoBranchModel", "dim": DIM, **parts},
        feature_dim=DIM,
        text_dim=DIM,
        text_format="vectors",
    )


def zero_shot_scores(inputs: TrainingInputs) -> torch.Tensor:
    extractor = OpenClip(tag=None, model_arguments=SMALL)
    FromFile(inputs.dataset.image_root / "clip.safetensors").load(extractor.backbone)
    val = inputs.dataset.split("val")
    images = torch.stack(
        [
            extractor.preprocess(Image.open(val.image_path(image_id)))
            for image_id in val.images["image_id"]
        ]
    )
    vectors = normalize(extractor.backbone.project(images), dim=1)
    return (
        vectors @ normalize(extractor.backbone.embed_sentences(list(val.captions["text"])), dim=1).T
    )


@torch.no_grad()
def test_new_heads_are_the_contrastive_model(inputs: TrainingInputs) -> None:
    model, pairs = heads(inputs).eval(), inputs.captions("val")
    assert ZeroShot().apply(model, inputs, seed=0) == {}
    images = torch.cat([model.embed_images(batch) for batch in pairs.image_batches(8)])
    captions = torch.cat([model.embed_captions(batch) for batch in pairs.caption_batches(8)])
    torch.testing.assert_close(images @ captions.T, zero_shot_scores(inputs), rtol=2e-3, atol=2e-3)


def test_zero_shot_row_ranks_by_the_cosine_of_the_towers(inputs: TrainingInputs) -> None:
    data = (inputs.features, inputs.text, inputs.vectorizer)
    result = Baselines(cca_dim=4)(Subject(heads(inputs), inputs.dataset, "val", *data))
    scores = zero_shot_scores(inputs)
    hits = [int((row > row[number]).sum() < 1) for number, row in enumerate(scores)]
    systems = result.metrics["baselines"]
    assert systems["zero_shot"]["caption_retrieval"]["R@1"] == pytest.approx(100 * np.mean(hits))
    assert systems["zero_shot"] == systems["model"]
    assert systems["chance"]["caption_retrieval"]["R@1"] == pytest.approx(100 / 8)
    assert set(systems) == {"model", "zero_shot", "cca", "chance"}
    json.dumps(result.metrics)
    assert len(result.report_sections()[0].blocks[0].rows) == 4


def test_blend_is_the_best_on_val_and_0_without_a_clear_gain(inputs: TrainingInputs) -> None:
    assert choose_blend(torch.nn.Linear(1, 1), inputs) == {}
    model, validate = heads(inputs), Recall().prepare(inputs)
    floor = validate(model)["recall_sum"]
    assert (
        choose_blend(model, inputs)["blend"] == 0
    )  # the heads change nothing, so the smallest weight is enough
    for seed in range(4):
        torch.manual_seed(seed)
        for head in (model.image_encoder.head, model.text_encoder.head):
            torch.nn.init.normal_(head.layers[-1].weight, std=0.5)
        found = choose_blend(model, inputs)
        clear = found["blend_gain_low"] > 0
        assert (found["blend"] > 0) == clear
        assert validate(model)["recall_sum"] == (found["blended_recall_sum"] if clear else floor)
        assert found["zero_shot_recall_sum"] == floor <= found["blended_recall_sum"]
        for blend in (0.3, 1.0):
            set_blend(model, blend)
            assert validate(model)["recall_sum"] <= found["blended_recall_sum"]


@pytest.mark.parametrize(("gains", "kept"), [((5.0, 90.0), 0.4), ((0.0, 90.0), 0.0)])
def test_the_interval_decides_about_the_heads(
    inputs: TrainingInputs, monkeypatch: pytest.MonkeyPatch, gains: tuple[float, float], kept: float
) -> None:
    model = heads(inputs)
    monkeypatch.setattr(members, "recall_sum_gain", lambda *arguments, **options: gains)
    monkeypatch.setattr(
        members,
        "recall_metrics",
        lambda ranks: {"recall_sum": 9.0 if model.image_encoder.head.blend == 0.4 else 3.0},
    )
    assert choose_blend(model, inputs)["blend"] == pytest.approx(kept)
    assert float(model.text_encoder.head.blend) == pytest.approx(kept)


def test_other_inputs_have_no_zero_shot_model(inputs: TrainingInputs, tmp_path: Path) -> None:
    metadata = {**inputs.features.metadata, "weights": "0" * 64}
    with FeatureWriter(tmp_path, regions=1, dim=DIM, metadata=metadata) as writer:
        writer.add("a", np.ones((1, DIM), np.float32), None, None)
    others = TrainingInputs(inputs.dataset, FeatureStore(tmp_path), inputs.text, inputs.vectorizer)
    with pytest.raises(
        ValueError, match="the image tower and the text tower have different weights"
    ):
        ZeroShot().apply(heads(inputs), others, seed=0)
    parts = {"image_encoder": "LinearEncoder", "text_encoder": "LinearEncoder"}
    linear = build_model(
        {"name": "TwoBranchModel", "dim": DIM, **parts},
        feature_dim=DIM,
        text_dim=DIM,
        text_format="vectors",
    )
    with pytest.raises(ValueError, match="LinearEncoder changes the vectors: use ResidualHead"):
        ZeroShot().apply(linear, inputs, seed=0)
