"""Papers' terms on photographs: valid losses, gains between equal seeds, and values that agree with
loops."""

import math

import pytest
import torch

from benchmarks.quality import paper_terms
from bifocal.features import RegionBatch
from bifocal.models import build_model
from bifocal.models.batch import Batch
from bifocal.registry import build
from bifocal.text import TextBatch
from bifocal.training.batches import CaptionBatches


def test_every_row_has_a_valid_loss_and_valid_batches() -> None:
    for objective, changes in paper_terms.rows().values():
        build("bifocal.losses", objective)
        values = {**paper_terms.STANDARD, **changes}
        assert set(values) <= {*paper_terms.STANDARD, "schedule", "pooling"}
        build("bifocal.image_encoders", values.get("pooling", "LinearEncoder"), input_dim=4, dim=3)
        CaptionBatches(values["images"] * values["captions"], captions_per_image=values["captions"])


def test_gains_compare_equal_seeds_under_one_condition() -> None:
    sums = {
        "standard: InfoNCE, seed 1": 300.0,
        "standard: InfoNCE, seed 2": 310.0,
        "standard: with structure, 0.1, seed 1": 303.0,
        "standard: with structure, 0.1, seed 2": 311.0,
        "48 images per batch: InfoNCE, seed 1": 290.0,
    }
    report = paper_terms.report(
        {key: {"recall_sum": value} for key, value in sums.items()}, seeds=[1, 2]
    )
    found = {result.name: result for result in report.results}
    assert found["standard: with structure, 0.1"].reference.startswith("+2.0 ± 1.4 over InfoNCE")
    assert found["48 images per batch: InfoNCE"].reference == "seeds: 1"
    assert found["standard: InfoNCE"].value == 305.0


def test_values_inside_a_model_are_those_of_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    matches = torch.tensor([0, 0, 1, 1, 2]) == torch.arange(3).unsqueeze(1)
    regions = RegionBatch(
        torch.randn(3, 1, 4, generator=generator),
        torch.ones(3, 1, dtype=torch.bool),
        torch.empty(3, 1, 4),
    )
    text = TextBatch(torch.randn(5, 4, generator=generator), torch.ones(5, dtype=torch.int64))
    parts = {"image_encoder": "LinearEncoder", "text_encoder": "LinearEncoder"}
    model = build_model(
        {"name": "TwoBranchModel", "dim": 4, **parts},
        feature_dim=4,
        text_dim=4,
        text_format="vectors",
    )
    batch = Batch(["a", "b", "c"], regions, text, matches)
    scores = model(batch).cross.tolist()
    largest, effective, violated, pairs = [], [], 0, 0
    for row, own in zip(scores, matches.tolist(), strict=True):
        negatives = [score for score, match in zip(row, own, strict=True) if not match]
        weights = [math.exp(score / 0.07) for score in negatives]
        shares = [weight / sum(weights) for weight in weights]
        largest.append(max(shares))
        effective.append(1 / sum(share**2 for share in shares))
        positives = [score for score, match in zip(row, own, strict=True) if match]
        pairs += len(positives)
        violated += sum(score < max(negatives) + 0.2 for score in positives)
    values = list(paper_terms.inside(model, batch).values())
    assert values[0] == pytest.approx(100 * sum(largest) / 3, rel=1e-4)
    assert values[1] == pytest.approx(sum(effective) / 3, rel=1e-4)
    assert values[2] == pytest.approx(100 * violated / pairs, rel=1e-4)
    assert all(-1 <= cosine <= 1 for cosine in values[5:])
