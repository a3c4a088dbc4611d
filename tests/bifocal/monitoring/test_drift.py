"""A week against the reference: which tests run, who reports what, and the rate of false alarms in
short."""

from dataclasses import replace
from datetime import UTC, date, datetime
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from prometheus_client.parser import text_string_to_metric_families

from bifocal.monitoring import TESTS, Count, Observations, Reference, Thresholds, Week, compare
from bifocal.monitoring.drift import share_rises


def observe(
    random: Generator, images: int = 150, queries: int = 200, styled: float = 0.0
) -> Observations:
    """Observations without a change, but for a share of images from another part of the space."""
    vectors = random.normal(size=(images, 4))
    vectors[: round(styled * images)] += 2.5
    return Observations(
        images=vectors.astype(np.float32),
        queries=random.normal(size=(queries, 4)).astype(np.float32),
        unknown_words=Count(int(random.binomial(queries, 0.03)), queries),
        nothing_found=Count(int(random.binomial(queries, 0.1)), queries),
        groups=np.arange(2 * images).reshape(images, 2),
    )


@pytest.fixture
def random() -> Generator:
    return np.random.default_rng(0)


def crossed(reference: Observations, week: Observations, seed: int = 0) -> set[str]:
    return {
        finding.name for finding in compare(reference, week, Thresholds(), seed) if finding.crossed
    }


def test_every_statistic_is_tested_in_its_order(random: Generator) -> None:
    findings = compare(observe(random), observe(random), Thresholds())
    assert [finding.name for finding in findings] == list(TESTS)
    assert {finding.level for finding in findings} == {0.01 / len(TESTS)}


def test_few_weeks_without_a_change_are_reported_and_new_styles_are_found(
    random: Generator,
) -> None:
    weeks = [(observe(random, 60, 60), observe(random, 60, 60)) for _ in range(60)]
    alarms = sum(bool(crossed(*pair, seed)) for seed, pair in enumerate(weeks))
    assert alarms <= 3  # with the rate 0.01, four or more have probability 0.003
    found = sum(
        "images" in crossed(observe(random), observe(random, styled=0.2), seed) for seed in range(3)
    )
    assert found == 3


def test_stationary_albums_are_not_reported(random: Generator) -> None:
    def albums(count: int) -> Observations:
        seen, labels = observe(random, 5 * count), np.repeat(np.arange(count), 5)
        images = np.repeat(random.normal(size=(count, 4)), 5, axis=0) + 0.5 * random.normal(
            size=(5 * count, 4)
        )
        return replace(seen, images=images, groups=np.stack([labels, labels], 1))

    reference, weeks = albums(40), [albums(30) for _ in range(10)]
    assert [crossed(reference, week) for week in weeks] == [set()] * 10
    singles = [
        crossed(replace(reference, groups=None), replace(week, groups=None)) for week in weeks
    ]
    assert sum("images" in names for names in singles) >= 3


def test_each_change_is_reported_by_its_test(random: Generator) -> None:
    reference, week = observe(random), observe(random)
    changes = {
        "unknown_words": replace(week, unknown_words=Count(30, 200)),
        "nothing_found": replace(week, nothing_found=Count(60, 200)),
        "queries": replace(week, queries=week.queries + 1),
    }
    for name, changed in changes.items():
        assert crossed(reference, changed) == {name}


def test_certain_but_small_rise_is_not_reported(random: Generator) -> None:
    reference, week = observe(random), replace(observe(random), nothing_found=Count(60, 200))
    (finding,) = [
        entry
        for entry in compare(reference, week, Thresholds(min_change={"nothing_found": 0.5}))
        if entry.name == "nothing_found"
    ]
    assert finding.p_value < finding.level
    assert not finding.crossed


def test_a_short_week_has_no_test(random: Generator) -> None:
    assert compare(observe(random), observe(random, images=10, queries=10), Thresholds()) == []


@given(m=st.integers(1, 12), n=st.integers(1, 12), data=st.data())
def test_share_rises_is_fishers_exact_test(m: int, n: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, m)), data.draw(st.integers(0, n))
    tables = {
        hits: comb(n, hits) * comb(m, a + b - hits)
        for hits in range(n + 1)
        if 0 <= a + b - hits <= m
    }
    expected = sum(count for hits, count in tables.items() if hits >= b) / sum(tables.values())
    assert share_rises(Count(a, m), Count(b, n)) == pytest.approx(expected)


def test_too_few_permutations_are_an_error() -> None:
    with pytest.raises(ValueError, match="permutations is 99"):
        Thresholds(permutations=99)


def test_reference_is_read_as_it_was_written(random: Generator, tmp_path: Path) -> None:
    written = Reference("0" * 64, date(2026, 11, 22), observe(random))
    for _ in range(2):  # the second one replaces the first
        written.write(tmp_path / "reference")
    read = Reference.read(tmp_path / "reference")
    assert (read.model, read.day) == (written.model, written.day)
    np.testing.assert_allclose(read.observations.images, written.observations.images, rtol=1e-3)
    np.testing.assert_array_equal(read.observations.groups, written.observations.groups)
    findings = compare(written.observations, read.observations, Thresholds())
    assert [finding.name for finding in findings] == list(TESTS)
    assert all(
        finding.value == finding.reference
        for finding in findings
        if finding.name not in ("images", "queries")
    )
    with pytest.raises(FileNotFoundError, match="holds no reference"):
        Reference.read(tmp_path / "nothing")


def test_exposition_is_read_by_the_parser_of_prometheus(random: Generator) -> None:
    findings = compare(observe(random), observe(random), Thresholds())
    moment = datetime(2026, 11, 22, tzinfo=UTC)
    text = Week(moment.date(), 7, {"queries": 200}, findings).exposition(moment)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    values = {
        entry.labels["test"]: entry.value for entry in families["bifocal_monitor_value"].samples
    }
    assert values == pytest.approx({finding.name: finding.value for finding in findings})
    assert families["bifocal_monitor_entries"].samples[0].value == 200
    assert (
        families["bifocal_monitor_last_run_timestamp_seconds"].samples[0].value
        == moment.timestamp()
    )
