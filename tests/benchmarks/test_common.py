"""Reports of benchmarks, their JSON files and the rendered table."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import render as tables
from benchmarks.__main__ import main
from benchmarks.common import RESULTS, ROOT, Report, Result, read_results
from benchmarks.peers.compare import added_megabytes, compare, write


@pytest.mark.parametrize(
    ("value", "bar", "at_most", "verdict"),
    [
        (1.0, 1.0, True, "ok"),
        (1.1, 1.0, True, "MISS"),
        (1.0, 1.0, False, "ok"),
        (0.9, 1.0, False, "MISS"),
    ],
)
def test_verdict_compares_the_value_with_its_bar(
    value: float, bar: float, at_most: bool, verdict: str
) -> None:
    assert Result("name", value, bar=bar, at_most=at_most).verdict == verdict


def test_nan_misses_every_bar() -> None:
    assert Result("name", float("nan"), bar=1.0, at_most=True).verdict == "MISS"
    assert Result("name", float("nan"), bar=1.0).verdict == "MISS"


def test_report_prints_results_and_keeps_those_of_a_previous_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Report("speed.x"), Report("speed.x")
    first.add("a", 1.0, "s", at_most=2.0)
    first.add("b", 2.0)
    second.add("b", 3.0, at_least=4.0, reference="peer 5")
    first.write(tmp_path)
    second.write(tmp_path)
    results = read_results(tmp_path / "speed.x.json")
    assert [(result.name, result.value, result.verdict) for result in results] == [
        ("a", 1.0, "ok"),
        ("b", 3.0, "MISS"),
    ]
    assert all(result.date for result in results)
    assert "peer 5" in capsys.readouterr().out
    changed = Report("speed.x")
    changed.measure = "another protocol"
    changed.add("c", 6.0)
    changed.write(tmp_path)
    assert [result.name for result in read_results(tmp_path / "speed.x.json")] == ["c"]


def test_a_ratio_that_fell_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (2.0, 1.7):  # a fall of less than a fifth
        report = Report("peers.x")
        report.add("ranks: torchsort", value, "times")
        write(report, tmp_path)
    report = Report("peers.x")
    report.add("ranks: torchsort", 1.3, "times")
    with pytest.raises(SystemExit, match=r"ranks: torchsort: 1\.70 to 1\.30"):
        write(report, tmp_path)
    monkeypatch.setattr("benchmarks.peers.compare.processor", lambda: "another: avx2")
    report = Report("peers.x")
    report.add("ranks: torchsort", 0.5, "times")
    write(report, tmp_path)  # the former ratio is of another processor


def test_a_page_has_some_columns_and_rows_of_a_record() -> None:
    page = (
        "# Board\n\n| system | scale |\n| --- | --- |\n\n| system | seeds | image R@1 |\n| --- "
        "| --- | --- |\n"
        "| BEAN | 3 | 1.0 ± 0.1 |\n| WSABIE | 3 | 5.0 |\n"
    )
    expected = "|image R@1|system|\n|---|---|\n|1.0 ± 0.1|BEAN|\n"
    assert tables.columns_of(page, ["image R@1", "system"], ["WSABIE"]) == expected
    with pytest.raises(ValueError, match="no table has the columns loss"):
        tables.columns_of(page, ["loss"])


def test_a_page_out_of_date_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """``make check`` compares the real pages."""
    monkeypatch.setattr(tables, "render", lambda: {ROOT / "README.md": "text"})
    result = CliRunner().invoke(main, ["render", "--check"])
    assert "out of date: README.md; run 'python -m benchmarks render'" in result.output


def test_every_result_file_belongs_to_a_benchmark() -> None:
    assert {file.stem for file in RESULTS.glob("*.json")} <= tables.benchmarks().keys()


@pytest.mark.parametrize(
    "name", [name for name in tables.benchmarks() if not name.startswith("peers.")]
)
def test_benchmark_imports(name: str) -> None:
    assert import_module(f"benchmarks.{name}").main


def test_list_prints_every_benchmark_and_run_rejects_an_unknown_one() -> None:
    output = CliRunner().invoke(main, ["list"], catch_exceptions=False).output
    assert all(name in output for name in tables.benchmarks())
    assert (
        "no benchmark 'speed.nothing'" in CliRunner().invoke(main, ["run", "speed.nothing"]).output
    )


def test_a_peer_is_compared_by_the_ratio_of_cpu_time_and_a_floor_has_no_bar() -> None:
    report = Report("peers.x")
    for peer, cost in (("numpy twice", 40_000), ("numpy half (floor)", 10_000)):
        compare(
            report, "sum", peer, lambda: sum(range(20_000)), lambda count=cost: sum(range(count))
        )
    slow, floor = report.results
    assert slow.name == "sum: numpy twice"
    assert slow.value > 1.2
    assert slow.bar == 1.0
    assert f"0 and 0 MB; numpy {np.__version__}" in slow.reference
    assert floor.value < 0.8
    assert floor.bar is None


def test_the_memory_of_a_call_is_that_of_its_arrays() -> None:
    assert added_megabytes(lambda: np.ones(2_000_000)) == pytest.approx(16, abs=4)


def test_published_values_stand_beside_results(tmp_path: Path) -> None:
    report = Report("speed.x")
    report.add("a", 0.25, "s")
    report.write(tmp_path)
    (tmp_path / "r.yaml").write_text(
        "- {published: table 1, benchmark: speed.x, ours: a, same: 'yes', time: 1 s}\n"
    )
    row = tables.reproduced(tmp_path / "r.yaml", tmp_path).splitlines()[-1]
    assert row == "|table 1|0.25 s|yes|`speed.x`|1 s|"
