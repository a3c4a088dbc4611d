"""The options of ``bifocal serve`` that name a second release."""

from pathlib import Path

import click
import pytest

from bifocal.serving.service.live.sources import RunSource
from pipelines.app.serve_sources import ReleaseSource, open_candidate
from tests.pipelines.app.serve.comparison.comparing import CANDIDATE, CHAMPION


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    source = ReleaseSource(CHAMPION, None)
    assert open_candidate(source, None, None, None) is None
    for options, reason in (
        ((CANDIDATE, CANDIDATE, None), "exclude each other"), ((None, None, 0.1), "needs --canary or --shadow"),
        (("other", None, None), "expected models:/NAME@ALIAS"),
    ):  # fmt: skip
        with pytest.raises(click.UsageError, match=reason):
            open_candidate(source, *options)
    with pytest.raises(click.UsageError, match="--shadow compares releases: it needs --model"):
        open_candidate(RunSource(tmp_path), None, CANDIDATE, None)
