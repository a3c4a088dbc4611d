"""Usage of a stage in a process of its own, and lines through measurements."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.plan.measure import Processes, estimate
from runtime import parameters

ROOT = Path(__file__).parents[3]


@given(start=st.floats(0, 100), slope=st.floats(0, 10), amount=st.floats(1, 1e4))
def test_line_through_exact_measurements_has_no_error(start: float, slope: float, amount: float) -> None:
    amounts = [10.0, 20.0, 60.0]
    found = estimate(amounts, [start + slope * x for x in amounts], amount)
    assert found.value == pytest.approx(start + slope * amount, rel=1e-4, abs=1e-3)
    assert found.error == pytest.approx(0, abs=1e-2)


@given(values=st.lists(st.floats(0, 1e3), min_size=3, max_size=3))
def test_estimate_is_never_negative(values: list[float]) -> None:
    for amount in (0, 5, 1e5):
        found = estimate([1, 2, 3], values, amount)
        assert found.value >= 0
        assert found.error >= 0


def test_amounts_that_are_equal_give_the_mean() -> None:
    assert estimate([0, 0, 0], [1, 2, 3], 0).value == 2


def test_usage_of_a_stage_is_that_of_its_process(tmp_path: Path) -> None:
    corpus = {"name": "Scenes", "train": 6, "val": 2, "test": 2, "size": 64}
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), {"prepare_dataset": {"corpus": corpus}})
    processes = Processes(tmp_path / "mlflow.db")
    usage = processes.run("prepare_dataset", values, tmp_path)
    files = [path for path in (tmp_path / "dataset").rglob("*") if path.is_file()]
    assert usage.disk == sum(path.stat().st_size for path in files)
    assert 5e7 < usage.memory < 5e9
    assert 0 < usage.seconds < 60
    values["prepare_dataset"]["corpus"] = {"name": "Flickr8k", "root": "/no/such/folder"}
    with pytest.raises(ValueError, match="'/no/such/folder' is not a folder"):
        processes.run("prepare_dataset", values, tmp_path)
