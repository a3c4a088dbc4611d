"""Counts of a comparison belong to two registered versions, whose collections may be refreshed
meanwhile."""

from types import SimpleNamespace
from typing import Any

from bifocal.serving.service.candidate import Candidate, Comparison
from bifocal.serving.service.models import ModelVersion


def release(number: int, name: str) -> Any:
    return SimpleNamespace(
        version=ModelVersion(f"bifocal version {number}, release {name}", "hash", number, name)
    )


def new_comparison() -> Any:
    nothing: Any = SimpleNamespace()
    champion: Any = SimpleNamespace(loaded=SimpleNamespace(release=release(2, "monday")))
    return Comparison(Candidate(nothing, "canary", 0.1), champion, nothing, nothing, nothing)


def test_a_refresh_keeps_the_counts_and_another_version_begins_anew() -> None:
    comparison = new_comparison()
    first = comparison._report(release(1, "monday"), release(2, "monday"))
    first.counts_champion.add_error(3)
    refreshed = comparison._report(release(1, "tuesday"), release(2, "monday"))
    assert (refreshed.champion.digest, refreshed.counts_champion.errors.sum()) == ("tuesday", 1)
    other = comparison._report(release(1, "tuesday"), release(3, "tuesday"))
    assert other.counts_champion.errors.sum() == 0
    assert other.id != refreshed.id


def test_the_report_before_the_first_search_is_not_of_a_previous_candidate() -> None:
    comparison = new_comparison()
    previous = comparison._report(release(1, "monday"), release(2, "monday"))
    comparison.reloader = SimpleNamespace(loaded=None)
    assert comparison.report is previous  # the last counts, after the end of the comparison
    comparison.reloader = SimpleNamespace(loaded=SimpleNamespace(release=release(3, "tuesday")))
    found = comparison.report
    assert (found.champion.version, found.candidate.version) == (2, 3)
    assert comparison.report is found


def test_the_last_report_stays_when_the_candidate_becomes_the_champion() -> None:
    comparison = new_comparison()
    last = comparison._report(release(1, "monday"), release(2, "monday"))
    comparison.reloader = SimpleNamespace(loaded=SimpleNamespace(release=release(2, "monday")))
    assert (
        comparison.report is last
    )  # the champion is 2 already, the alias of the candidate is still read
    assert (last.champion.version, last.candidate.version) == (1, 2)
