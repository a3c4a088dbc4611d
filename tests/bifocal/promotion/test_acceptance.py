"""Acceptance of an exported model: both models are ranked again, on the test images of both."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bifocal.datasets import Dataset, read_dataset
from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.evaluation.rank_tables import evaluated_images
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.promotion.acceptance import assess
from bifocal.promotion.checks import gain_check, limit_check
from bifocal.promotion.comparison import RETRIEVAL
from bifocal.promotion.exported_model import ExportedModel
from bifocal.promotion.looks import Look, image_sketch
from tests.bifocal.datasets.small import write_copies
from tests.bifocal.promotion.tiny_models import (
    CRITERIA,
    colors,
    decide,
    pointing,
    tiny_model,
    write_colors,
)

IMAGES = 50


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_colors(tmp_path_factory.mktemp("colors") / "dataset", IMAGES)


@pytest.fixture(scope="module")
def model(
    dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[float], ExportedModel]:
    made = {
        noise: tiny_model(tmp_path_factory.mktemp("model"), dataset, noise)
        for noise in (0.0, 0.3, 0.6, 5.0)
    }
    return lambda noise: made[noise]


def test_better_model_is_accepted_and_an_equal_or_worse_one_is_not(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    better = decide(dataset, model(0.0), model(0.6))
    assert better.reasons == []
    assert better.record()["metrics"]["gain"] > 100
    for previous in (0.3, 0.0):
        (reason, *_) = decide(dataset, model(0.3), model(previous)).reasons
        assert "the gain in the recall sum is" in reason
        assert "more than 1 is required" in reason


def test_ranks_do_not_depend_on_how_the_models_were_evaluated(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    """In version 0.1, the ranks of five small folds made the champion's own copy better than the
    champion."""
    easier = pd.DataFrame(
        {"rank": np.zeros(1), "direction": "caption_retrieval", "query": "0", "image_id": "0"}
    )
    copy = replace(
        model(0.3),
        ranks=pd.concat([model(0.3).ranks, easier.assign(content="", protocol="a fold")]),
    )
    metrics = decide(dataset, copy, model(0.3)).record()["metrics"]
    assert metrics["gain"] == 0.0
    assert metrics["candidate.recall_sum"] == metrics["champion.recall_sum"]


def test_ranks_of_the_graphs_are_those_of_their_embeddings(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    split = dataset.split("test")
    embedder = model(0.3).encoders
    words = embedder.embed_sentences(split.captions["text"].tolist())
    images = (
        np.array(
            [Image.open(split.image_path(i)).getpixel((0, 0)) for i in split.images["image_id"]]
        )
        - 127.5
    )
    scores = images / np.linalg.norm(images, axis=1, keepdims=True) @ words.T
    ids = split.images["image_id"].tolist()
    own = [ids.index(image_id) for image_id in split.captions["image_id"]]
    expected = [int((scores[:, m] > scores[own[m], m]).sum()) for m in range(len(own))]
    table = model(0.3).rank(split, None)
    assert table.loc[table["direction"] == "image_retrieval", "rank"].tolist() == expected


def test_models_are_compared_on_the_test_images_that_neither_was_trained_on(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    known = model(0.6).evaluated_on
    previous = replace(
        model(0.6), evaluated_on=known[:30], trained_on=frozenset(known["content"][45:])
    )
    result = decide(dataset, model(0.0), previous)
    assert result.reasons == []
    assert result.test_set["left_out"] == {"in the training of the other model": 5}
    assert result.test_set["images"] == 45
    candidate = replace(model(0.0), trained_on=frozenset(known["content"][:8]))
    result = decide(dataset, candidate, previous)
    assert result.reasons == [
        "37 of 50 test images can be compared, 40 are required; left out: 8 in the training of "
        "the candidate; 5 in the training of the other model"
    ]
    assert result.look is None
    assert decide(dataset, candidate, previous, min_images=20).reasons == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parity": 1.0}, "parity is 1"),
        ({"parity": float("nan")}, "parity is nan"),
        ({"backbone_parity": 1.0}, "backbone_parity is 1"),
        ({"size_mb": 1e6}, "size_mb is"),
    ],
)
def test_each_violated_limit_is_a_reason(
    dataset: Dataset,
    model: Callable[[float], ExportedModel],
    changes: dict[str, Any],
    expected: str,
) -> None:
    (reason,) = decide(dataset, replace(model(0.0), **changes)).reasons
    assert expected in reason


def test_first_model_needs_the_floor(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    """Version 0.1 made a model with zero recall the first champion."""
    (reason,) = decide(dataset, model(5.0), floors={"recall_sum": 250.0}).reasons
    assert "the floor is 250" in reason
    accepted = decide(dataset, model(0.0), floors={"recall_sum": 250.0, "pointing": 30.0})
    assert accepted.reasons == []
    assert accepted.notes[-1].endswith("there is none")
    without = replace(model(0.0), ranks=model(0.0).ranks[:0])
    assert decide(dataset, without, floors={"pointing": 30.0}).reasons == [
        "pointing was not measured, its floor is 30"
    ]


def test_graphs_that_return_nan_are_a_reason(dataset: Dataset, tmp_path: Path) -> None:
    (reason,) = decide(dataset, tiny_model(tmp_path, dataset, float("nan"))).reasons
    assert "the candidate cannot be ranked again: 5000 of 5000 scores of a block are NaN" in reason


def test_missing_and_dropped_metrics_fail_their_guards(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    """Version 0.1 skipped the guard if one of the models had no pointing accuracy."""
    strong, weak = (
        replace(model(noise), ranks=pointing(dataset, hits))
        for noise, hits in ((0.6, 0.9), (0.0, 0.4))
    )
    (reason,) = decide(dataset, weak, strong).reasons
    assert "pointing changes by -50.00" in reason
    assert "a drop of more than 5 is not ruled out" in reason
    for ranks in (weak.ranks[:0], weak.ranks[:20], weak.ranks.assign(protocol="other boxes")):
        (reason,) = decide(dataset, replace(weak, ranks=ranks), strong).reasons
        assert "pointing" in reason


def test_a_guard_that_neither_model_measured_does_not_apply_and_the_record_says_so(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    with_boxes = [replace(model(noise), ranks=pointing(dataset, 0.9)) for noise in (0.0, 0.6)]
    without = [replace(entry, ranks=entry.ranks[:0]) for entry in with_boxes]
    accepted = decide(dataset, *without)
    assert accepted.reasons == []
    assert (
        "the guard of pointing does not apply: neither model was measured by it"
        in accepted.record()["notes"]
    )
    assert "drop.pointing" not in {check["name"] for check in accepted.record()["checks"]}
    for pair in ((without[0], with_boxes[1]), (with_boxes[0], without[1])):
        (reason,) = decide(dataset, *pair).reasons
        assert "pointing was measured on" in reason
    retrieval = {"max_drops": {"caption_retrieval.R@50": 1.0}}  # the graphs repeat it
    assert decide(dataset, *without, **retrieval).notes == []


@given(
    value=st.floats(1e-9, 1e9, allow_subnormal=False),
    limit=st.floats(1e-9, 1e9, allow_subnormal=False),
)
def test_a_refused_limit_names_a_value_that_accepts(value: float, limit: float) -> None:
    check = limit_check("latency_ratio.text", value, limit, "max_latency_ratio")
    key, _, accepted = check.setting.partition(": ")
    assert (key, float(accepted) >= value) == ("max_latency_ratio", True)
    assert float(accepted) <= 1.02 * value
    assert limit_check("latency_ratio.text", value, float(accepted)).passed
    assert ("policy.yaml" in check.explain("policy.yaml")) or check.passed


@pytest.mark.parametrize("seed", range(4))
def test_refusals_of_floors_drops_and_gains_name_a_setting_that_accepts_the_model(
    dataset: Dataset, model: Callable[[float], ExportedModel], seed: int
) -> None:
    """The setting is written to the criteria as the reason says, until nothing is refused."""
    strict: dict[str, Any] = {
        "min_images": 900,
        "floors": {"recall_sum": 599.9, "image_retrieval.R@1": 99.9},
        "max_drops": {"image_retrieval.R@1": 0.001, "caption_retrieval.R@5": 0.001},
        "min_gain": 599.0,
        "seed": seed,
    }
    models = model(0.3), model(0.6)
    for _ in range(3):
        result = decide(dataset, *models, **strict)
        for check in result.checks:
            if not check.passed:
                key, _, number = check.setting.partition(": ")
                assert f"'{check.setting}' in policies/mine.yaml: " in check.explain(
                    "policies/mine.yaml"
                )
                outer, _, metric = key.partition(".")
                strict[outer] = strict[outer] | {metric: float(number)} if metric else float(number)
    assert decide(dataset, *models, **strict).reasons == []


def test_a_gain_that_is_not_certain_names_what_would_help(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    (check,) = [
        check for check in decide(dataset, model(0.6), model(0.6)).checks if check.name == "gain"
    ]
    assert check.setting == ""
    assert "no min_gain accepts it: it measures no gain" in check.explain("promotion.yaml")


@pytest.mark.parametrize("better", [-3, 0, 1, 3, 40])
def test_below_0_min_gain_is_the_loss_to_rule_out_beside_a_measured_gain(better: int) -> None:
    """Of 40 images, some have a caption that only one model finds: 15 that of the other one."""
    changed = [1] * (15 + better) + [-1] * 15 if better < 40 else [1] * 40
    signs = np.array(changed[:40] + [0] * (40 - len(changed)))
    sides = [
        pd.DataFrame(
            {
                "direction": direction,
                "image_id": [str(number) for number in range(40)],
                "rank_current": np.where(signs < 0, 99.0, 0.0),
                "rank_reference": np.where(signs > 0, 99.0, 0.0),
            }
        )
        for direction in RETRIEVAL
    ]
    checks = {
        margin: gain_check(pd.concat(sides), [1, 5], margin, 0.001, 1)
        for margin in (1.0, -100.0, -400.0)
    }
    for margin, check in checks.items():
        assert check.value == pytest.approx(400 * signs.sum() / 40)
        assert check.bound is not None
        assert check.passed == (check.value > 0 and check.bound > margin)
    assert [check.passed for check in checks.values()] == {
        -3: [False, False, False],
        0: [False, False, False],
        1: [False, False, True],
        3: [False, False, True],
        40: [True, True, True],
    }[better]
    for check in checks.values():
        assert check.passed or (check.setting != "") == (better > 0)


def test_guard_allows_a_drop_only_if_its_bound_does(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    """A drop of 2 points on 50 images, of which 49 changed, does not exclude a 10-point drop."""
    previous, other = pointing(dataset, 0.5), pointing(dataset, 0.52)
    strong = replace(model(0.6), ranks=previous)
    weak = replace(model(0.0), ranks=other.assign(rank=1 - other["rank"]))
    (reason,) = decide(dataset, weak, strong, max_drops={"pointing": 10.0}).reasons
    assert "pointing changes by -2.00" in reason
    assert decide(dataset, weak, strong, max_drops={"pointing": 40.0}).reasons == []


def test_copies_of_training_images_are_refused(tmp_path: Path) -> None:
    leaky = write_colors(tmp_path / "dataset", IMAGES, copied=[3])
    result = decide(leaky, tiny_model(tmp_path / "model", leaky, 0.0))
    assert result.reasons == [
        "1 test images are also in train or val: the model was trained on them"
    ]
    assert result.test_set["images"] == IMAGES - 1


def test_near_duplicates_of_training_images_are_left_out_up_to_a_share(tmp_path: Path) -> None:
    """A re-encoded copy has another hash, which is all that version 0.1 looked at."""
    random = np.random.default_rng(0)
    (tmp_path / "source").mkdir()
    for name in ("train", "other", "test"):
        pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST).save(
            tmp_path / "source" / f"{name}.png"
        )
    with Image.open(tmp_path / "source" / "train.png") as image:
        image.save(tmp_path / "source" / "copy.jpg", quality=95)
    files = {"train.png": "train", "other.png": "test", "test.png": "test", "copy.jpg": "test"}
    images = [ImageEntry(name, name, split) for name, split in files.items()]
    captions = [CaptionEntry(number, name, f"word{number}") for number, name in enumerate(files)]
    (tmp_path / "dataset").mkdir()
    corpus = Corpus(tmp_path / "source", images, captions)
    write_copies(tmp_path / "dataset", corpus)
    dataset = read_dataset(tmp_path / "dataset")
    model = tiny_model(tmp_path / "model", dataset, 0.0)
    options: dict[str, Any] = {"min_images": 2, "floors": {}}
    result = decide(dataset, model, **options)
    assert result.reasons == [
        "1 test images look like images in train or val, 33 %: at most 2 % are allowed"
    ]
    assert result.test_set["left_out"] == {"near-duplicates of training images": 1}
    assert decide(dataset, model, max_near_duplicates=0.5, **options).reasons == []


def test_looks_at_one_test_set_share_a_level(
    dataset: Dataset, model: Callable[[float], ExportedModel]
) -> None:
    first = decide(dataset, model(0.0), model(0.6)).look
    assert first is not None
    assert first.level == pytest.approx(0.005)
    assert first.images == image_sketch(dataset.split("test").images["sha256"])
    others = tuple(Look((str(number), "1"), 0.005, first.images) for number in range(10, 20))
    used_up = decide(dataset, model(0.0), model(0.6), looks=others)
    assert "the test set is used up: 10 comparisons" in used_up.reasons[0]
    # The same comparison again spends nothing, and looks at other images do not count.
    assert decide(dataset, model(0.0), model(0.6), looks=(*others[1:], first)).reasons == []
    elsewhere = tuple(replace(look, images=image_sketch(["f" * 64, "e" * 64])) for look in others)
    assert decide(dataset, model(0.0), model(0.6), looks=elsewhere).reasons == []


def test_models_of_features_are_ranked_on_equal_features(dataset: Dataset, tmp_path: Path) -> None:
    """The features artifact replaces the pixels; images whose features differ from the champion's
    are left out."""
    stores = []
    for name, shift in (("features", 0.0), ("others", 1.0)):
        (tmp_path / name).mkdir()
        with FeatureWriter(tmp_path / name, regions=2, dim=3, metadata={}) as writer:
            for number, color in enumerate(colors(len(dataset.images))):
                region = color - 127.5 + shift * (number % 2)
                writer.add(str(number), np.stack([region, region]).astype(np.float32))
        stores.append(FeatureStore(tmp_path / name))
    images = dataset.split("test").images
    models = [
        replace(
            tiny_model(tmp_path / f"noise {noise}", dataset, noise, of_features=True),
            evaluated_on=evaluated_images(images, stores[0]),
        )
        for noise in (0.0, 0.6)
    ]
    assert not any(model.reads_images for model in models)
    result = assess(dataset, models, [stores[0]] * 2, CRITERIA)
    assert result.reasons == []
    assert result.record()["metrics"]["candidate.recall_sum"] == 600
    (reason,) = assess(dataset, models, [stores[1]] * 2, CRITERIA).reasons
    assert "25 with other features than the other model's" in reason
    (reason,) = assess(dataset, models[:1], [None], CRITERIA).reasons
    assert "the graphs take text, features: images need the features they read" in reason
