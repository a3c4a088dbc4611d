"""Promises of every registered evaluator: ``evaluator(subject) -> Result``."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bifocal import registry
from bifocal.evaluation.base import Result, Subject, build_page, merge_metrics, scalar_metrics
from bifocal.evaluation.rank_tables import query_ranks
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.report.sections import anchor, render
from tests.bifocal.evaluation.small import DIM, INPUTS, read_subject, write_inputs

EVALUATORS = registry.registered("bifocal.evaluation")
SMALL: dict[str, Any] = {"resamples": 100, "shown": 2, "compared": 20}
ALWAYS_APPLY = {"Compositionality", "DataQuality", "Retrieval"}
NEED_FILES = {"JudgedRetrieval", "SugarCrepe"}
NEED_MORE_THAN_GRIDS = {
    "BackbonePointing",
    "Baselines",
    "PhraseLocalization",
    "ObjectLocalization",
} | NEED_FILES


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("inputs")
    for name in INPUTS:
        (folder / name).mkdir()
    write_inputs({name: folder / name for name in INPUTS})
    return read_subject(folder)


@pytest.fixture(scope="module")
def poor_subject(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A subject without phrases, boxes, repeated words and image files."""
    folder = tmp_path_factory.mktemp("features")
    with FeatureWriter(folder, regions=1, dim=DIM, metadata={}) as writer:
        for image_id in subject.dataset.images["image_id"]:
            writer.add(image_id, np.ones((1, DIM), dtype=np.float32))
    dataset = replace(
        subject.dataset,
        images=subject.dataset.images.assign(path=None),
        phrases=subject.dataset.phrases.iloc[:0],
        captions=subject.dataset.captions.assign(text="a dog"),
    )
    return replace(subject, dataset=dataset, features=FeatureStore(folder))


def evaluate(name: str, subject: Subject) -> Result:
    result: Result = registry.build("bifocal.evaluation", name)(replace(subject, **SMALL))
    return result


@pytest.mark.parametrize("name", sorted(EVALUATORS))
class TestEveryEvaluator:
    def test_builds_without_arguments(self, name: str) -> None:
        assert callable(registry.build("bifocal.evaluation", name))

    def test_returns_finite_json_metrics_and_scalars(self, name: str, subject: Subject) -> None:
        result = evaluate(name, subject)
        assert bool(result.skipped) == (name in NEED_MORE_THAN_GRIDS)
        json.dumps(result.metrics, allow_nan=False)
        scalars = scalar_metrics([result])
        assert all(np.isfinite(value) for value in scalars.values())
        assert {scalar.partition(".")[0] for scalar in scalars} <= result.metrics.keys()

    def test_queries_have_the_columns_of_ranks(self, name: str, subject: Subject) -> None:
        queries = evaluate(name, subject).queries
        if queries is not None:
            assert list(queries.columns) == list(query_ranks("", [], [], [], [], []).columns)
            assert np.isfinite(queries["rank"]).all()
            assert not queries[["direction", "query"]].duplicated().any()

    def test_sections_are_rendered(self, name: str, subject: Subject) -> None:
        result = evaluate(name, subject)
        page = render(build_page(subject, [result], {}))
        for section in result.report_sections():
            assert f'id="{anchor(section.title)}"' in page
        if result.skipped:
            assert result.title in page
            assert result.skipped in page

    def test_result_is_reproducible(self, name: str, subject: Subject) -> None:
        first, second = evaluate(name, subject), evaluate(name, replace(subject))
        assert first.metrics == second.metrics
        assert first.report_sections() == second.report_sections()

    def test_gives_reason_if_it_does_not_apply(self, name: str, poor_subject: Subject) -> None:
        result = evaluate(name, poor_subject)
        assert bool(result.skipped) != bool(result.metrics or result.report_sections())
        assert not (result.skipped and name in ALWAYS_APPLY)
        if result.skipped:
            assert result.skipped.endswith(".")
            assert (result.metrics, result.metric_rows(), result.report_sections()) == ({}, [], [])


def test_titles_and_metric_keys_are_unique(subject: Subject) -> None:
    results = [evaluate(name, subject) for name in EVALUATORS]
    assert len({result.title for result in results}) == len(results)
    merge_metrics(results)
