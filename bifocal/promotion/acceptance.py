"""Decision whether an exported model replaces another one: both are ranked again, on the same
images."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.onnx.files import CONTRASTIVE
from bifocal.promotion.checks import (
    EVALUATE,
    Check,
    floor_check,
    gain_check,
    guard_check,
    limit_check,
    uncertainty,
    zero_shot_check,
)
from bifocal.promotion.common_images import CommonImages, common_images
from bifocal.promotion.comparison import RETRIEVAL, join_queries
from bifocal.promotion.exported_model import ExportedModel, latency_ratios
from bifocal.promotion.looks import Look, image_sketch, next_look


@dataclass(frozen=True)
class Criteria:
    """What a model must meet; metrics are in percent, gains and drops in percentage points."""

    recall_at: Sequence[int]  # K of the recall sum, which adds R@K of both directions
    min_images: int  # required number of images to compare on
    min_gain: float  # the recall sum must certainly gain more than this; below 0, not lose more
    false_promotion_rate: (
        float  # probability that any of ``looks`` models without such a gain is accepted
    )
    looks: int  # planned comparisons on one test set
    max_drops: Mapping[str, float]  # largest drop of single metrics
    floors: Mapping[str, float]  # lowest value of single metrics, also without another model
    confidence: float  # one-sided confidence with which drops and floors are tested
    seed: int  # seed of the subsets of images that give confidence bounds
    max_near_duplicates: (
        float  # largest share of test images that look like a training image; they are left out
    )
    parity: float  # largest difference of an embedding between the graphs and torch
    backbone_parity: float
    max_latency_ratio: float  # largest median time per input, relative to the other model
    size_mb: float  # largest size of the graphs

    @property
    def alpha(self) -> float:
        """Level at which drops and floors are tested."""
        return 1 - self.confidence


@dataclass
class Assessment:
    """Result of all checks."""

    checks: list[Check] = field(default_factory=list)  # conditions, met or not
    metrics: dict[str, float] = field(default_factory=dict)  # further measured values, in percent
    notes: list[str] = field(default_factory=list)  # what could not be measured, and why
    test_set: dict[str, Any] = field(default_factory=dict)  # images of the comparison
    look: Look | None = None  # spent level; None if the models were not compared

    @property
    def reasons(self) -> list[str]:
        """Reasons of the conditions that are not met."""
        return [check.reason for check in self.checks if not check.passed]

    def record(self, policy: str = "promotion.yaml") -> dict[str, Any]:
        """Return everything as values for JSON, with all finite numbers in ``metrics``.

        Reasons name the settings of the file ``policy`` that would accept the model.
        """
        values = {check.name: check.value for check in self.checks}
        lows = {f"{check.name}.low": check.bound for check in self.checks}
        numbers = {
            name: value
            for name, value in (values | lows | self.metrics).items()
            if value is not None
        }
        return {
            "reasons": [check.explain(policy) for check in self.checks if not check.passed],
            "checks": [check.record() for check in self.checks],
            "metrics": {
                name: float(value) for name, value in numbers.items() if math.isfinite(value)
            },
            "notes": self.notes,
            "test_set": self.test_set,
            "level": self.look.level if self.look else None,
        }


def assess(
    dataset: Dataset,
    models: Sequence[ExportedModel],
    stores: Sequence[FeatureStore | None],
    criteria: Criteria,
    *,
    names: tuple[str, str] = ("", ""),
    looks: Sequence[Look] = (),
) -> Assessment:
    """Check the first model, the candidate, against ``criteria`` on common test images; the second
    is the model that it would replace. A repeated comparison with the same ``names`` spends no
    level.
    """
    result, candidate = Assessment(), models[0]
    result.checks += _graph_checks(candidate, criteria)
    common = common_images(dataset, models, stores)
    result.checks += _test_set_checks(common, criteria)
    result.notes += common.notes
    sketch = image_sketch(common.contents)
    result.test_set = {
        "images": len(common.split.images),
        "captions": len(common.split.captions),
        "left_out": common.left_out,
        "sketch": list(sketch),
    }
    if len(common.split.images) < max(2, criteria.min_images):
        return result
    tables = []
    for number, (model, store) in enumerate(zip(models, stores, strict=True)):
        who = ("the candidate", "the model to compare with")[number]
        try:
            tables.append(model.rank(common.split, store))
        except ValueError as error:
            result.checks.append(Check("ranks", f"{who} cannot be ranked again: {error}"))
            return result
    result.checks += _floor_checks(candidate, tables[0], criteria)
    result.checks += _zero_shot_checks(candidate, common, criteria)
    if len(models) > 1:
        result.look = next_look(criteria.false_promotion_rate, criteria.looks, names, sketch, looks)
        guards = {
            name: drop
            for name, drop in criteria.max_drops.items()
            if not _is_unmeasured(models, name)
        }
        result.checks += _comparison_checks(
            models, tables, common, replace(criteria, max_drops=guards), result.look.level
        )
        result.notes += [
            f"the guard of {name} does not apply: neither model was measured by it"
            for name in criteria.max_drops
            if name not in guards
        ]
        result.checks += _latency_checks(models, common, criteria)
    else:
        result.notes.append(
            "latency was not checked: its limit is relative to the champion, and there is none"
        )
    for name, table in zip(("candidate", "champion"), tables, strict=False):
        result.metrics |= {
            f"{name}.{key}": value for key, value in _recalls(table, criteria.recall_at).items()
        }
    return result


def _graph_checks(model: ExportedModel, criteria: Criteria) -> Iterator[Check]:
    yield limit_check("parity", model.parity, criteria.parity)
    yield limit_check("backbone_parity", model.backbone_parity, criteria.backbone_parity)
    yield limit_check("size_mb", model.size_mb, criteria.size_mb)


def _test_set_checks(common: CommonImages, criteria: Criteria) -> Iterator[Check]:
    found, left_out = (
        len(common.split.images),
        "; ".join(f"{n} {why}" for why, n in common.left_out.items()),
    )
    reason = (
        f"{found} of {common.test_images} test images can be compared, {criteria.min_images} "
        "are required" + (f"; left out: {left_out}" if left_out else "")
    )
    setting = f"min_images: {found}" if found > 1 else ""
    known = [uncertainty(max(images, 1)) for images in (found, criteria.min_images)]
    cost = f"recalls are then known to {known[0]}, in place of {known[1]}" if setting else ""
    passed = found >= max(2, criteria.min_images)
    yield Check(
        "images", "" if passed else reason, found, criteria.min_images, setting=setting, cost=cost
    )
    yield Check(
        "copies",
        f"{common.copies} test images are also in train or val: the model was trained on them"
        if common.copies
        else "",
        common.copies,
        0,
    )
    share = common.near_duplicates / max(1, found + common.near_duplicates)
    reason = (
        f"{common.near_duplicates} test images look like images in train or val, "
        f"{100 * share:.2g} %: at most {100 * criteria.max_near_duplicates:.2g} % are allowed"
    )
    limit = limit_check(
        "near_duplicates", share, criteria.max_near_duplicates, "max_near_duplicates"
    )
    cost = "recalls then say less about new images; 'bifocal inspect' names the pairs"
    yield replace(limit, reason=reason if limit.reason else "", cost=cost)


def _floor_checks(model: ExportedModel, ranks: pd.DataFrame, criteria: Criteria) -> Iterator[Check]:
    others = model.ranks[~model.ranks["direction"].isin(RETRIEVAL)]
    for name, floor in criteria.floors.items():
        yield floor_check(
            pd.concat([ranks, others]),
            name,
            criteria.recall_at,
            floor,
            criteria.alpha,
            criteria.seed,
        )


def _zero_shot_checks(
    model: ExportedModel, common: CommonImages, criteria: Criteria
) -> Iterator[Check]:
    """Yield the check of trained heads above a contrastive model; the graphs cannot repeat the
    ranks without heads."""
    known = model.evaluated_on["image_id"][model.evaluated_contents.isin(set(common.contents))]
    limits = criteria.min_gain, criteria.alpha, criteria.seed
    check = zero_shot_check(model.ranks, set(known), list(criteria.recall_at), *limits)
    if check is None and (model.directory / CONTRASTIVE).is_file():
        check = Check("zero_shot", f"the ranks of the zero-shot model are missing; {EVALUATE}")
    if check is not None:
        yield check


def _comparison_checks(
    models: Sequence[ExportedModel],
    tables: Sequence[pd.DataFrame],
    common: CommonImages,
    criteria: Criteria,
    level: float,
) -> Iterator[Check]:
    queries = join_queries(*tables)
    if level:
        yield gain_check(queries, criteria.recall_at, criteria.min_gain, level, criteria.seed)
    else:
        yield Check(
            "gain",
            f"the test set is used up: {criteria.looks} comparisons on it have spent the "
            f"allowed rate of false promotions, {criteria.false_promotion_rate:g}. Put new "
            "images into the test split, at least as many as it has",
        )
    for name, max_drop in criteria.max_drops.items():
        guarded = queries
        if _is_recorded(name):
            try:
                guarded = _recorded_queries(models, name, common)
            except ValueError as error:
                yield Check(f"drop.{name}", str(error), limit=-max_drop)
                continue
        yield guard_check(
            guarded, name, criteria.recall_at, max_drop, criteria.alpha, criteria.seed
        )


def _is_recorded(name: str) -> bool:
    """Whether the graphs cannot repeat a metric, such as pointing: the evaluations have its
    values."""
    return name.partition(".R@")[0] not in (*RETRIEVAL, "recall_sum")


def _is_unmeasured(models: Sequence[ExportedModel], name: str) -> bool:
    """Whether no model has values of a recorded metric, as without boxes in the data."""
    return _is_recorded(name) and not any(
        (model.ranks["direction"] == name).any() for model in models
    )


def _recorded_queries(
    models: Sequence[ExportedModel], direction: str, common: CommonImages
) -> pd.DataFrame:
    """Return the queries of a task that the graphs cannot repeat, such as pointing, from both
    models' evaluations."""
    tables = []
    shared = set(common.contents).intersection(*(model.evaluated_contents for model in models))
    for model in models:
        image_ids = set(model.evaluated_on["image_id"][model.evaluated_contents.isin(shared)])
        ranks = model.ranks
        tables.append(ranks[(ranks["direction"] == direction) & ranks["image_id"].isin(image_ids)])
    queries = join_queries(*tables)
    missing = max(map(len, tables)) - len(queries)
    if missing:
        raise ValueError(
            f"{direction} was measured on {len(tables[0])} queries of the candidate and "
            f"{len(tables[1])} of the other model, and {missing} are not in common, so a drop "
            "cannot be ruled out: evaluate both on the same phrases"
        )
    return queries


def _latency_checks(
    models: Sequence[ExportedModel], common: CommonImages, criteria: Criteria
) -> Iterator[Check]:
    read = all(model.reads_images for model in models)
    image = common.split.read(common.split.images["image_id"].iloc[0]) if read else None
    for kind, ratio in latency_ratios(models[0].encoders, models[1].encoders, image).items():
        yield limit_check(
            f"latency_ratio.{kind}", ratio, criteria.max_latency_ratio, "max_latency_ratio"
        )


def _recalls(ranks: pd.DataFrame, ks: Sequence[int]) -> dict[str, float]:
    values = {
        f"{direction}.R@{k}": 100
        * float((ranks.loc[ranks["direction"] == direction, "rank"] < k).mean())
        for direction in RETRIEVAL
        for k in ks
    }
    return values | {"recall_sum": sum(values.values())}
