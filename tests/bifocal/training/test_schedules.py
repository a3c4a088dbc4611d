"""Learning-rate schedules against the papers, and in training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.registry import build, registered
from bifocal.training.schedules import Cosine, MultiStep, Step

PACKAGE = "bifocal.training.schedules"


@pytest.mark.parametrize(
    ("learning_rate", "schedule", "expected"),
    [
        # BEAN, section 4.1: divided by two at every epoch until the seventh.
        (
            0.001,
            MultiStep([1, 2, 3, 4, 5, 6, 7], 0.5),
            {0: 1e-3, 1: 5e-4, 6.9: 1e-3 / 64, 7: 1e-3 / 128, 30: 1e-3 / 128},
        ),
        # SMILE, thesis 3.3.1: halved after epochs 6, 15, 25, 40 and 60.
        (
            0.001,
            MultiStep([6, 15, 25, 40, 60], 0.5),
            {5.99: 1e-3, 6: 5e-4, 59: 1e-3 / 16, 60: 1e-3 / 32},
        ),
        # Structure-preserving, section 3.2: from 0.1, by 0.1 after every 10 epochs.
        (0.1, MultiStep([10, 20], 0.1), {9: 0.1, 10: 0.01, 20: 0.001}),
        # Semantic retrieval, section 4.1: a tenth after 8,000 updates, of epochs of 3,000.
        (1e-5, MultiStep([8000 / 3000], 0.1), {7999 / 3000: 1e-5, 8000 / 3000: 1e-6}),
        # SoDeep, thesis 5.3.2: halved every 100 epochs; 5.5.1: every 3.
        (0.001, Step(100, 0.5), {0: 1e-3, 99.9: 1e-3, 100: 5e-4, 399: 1.25e-4}),
        (0.001, Step(3, 0.5), {2.9: 1e-3, 3: 5e-4, 14.9: 1e-3 / 16}),
    ],
)
def test_schedule_is_the_schedule_of_the_paper(
    learning_rate: float, schedule: Callable[[float, int], float], expected: dict[float, float]
) -> None:
    for epoch, rate in expected.items():
        assert learning_rate * schedule(epoch, 100) == pytest.approx(rate)


def test_cosine_rises_linearly_and_falls() -> None:
    schedule = Cosine(warmup=0.15)
    factors = [schedule(float(epoch), 20) for epoch in np.linspace(0, 20, 101)]
    assert factors[0] == 0
    assert factors[:16] == pytest.approx([index / 15 for index in range(16)])
    assert factors[100] == pytest.approx(0)
    assert max(factors) == pytest.approx(1)
    assert factors[15:] == sorted(factors[15:], reverse=True)


def test_cosine_without_warmup_is_the_equation() -> None:
    assert [Cosine()(epoch, 4) for epoch in range(5)] == pytest.approx(
        [1, 0.8535534, 0.5, 0.1464466, 0]
    )


@pytest.mark.parametrize("name", sorted(registered(PACKAGE)))
@given(epochs=st.integers(1, 100), fraction=st.floats(0, 1))
def test_every_schedule_gives_a_factor_from_0_to_1(name: str, epochs: int, fraction: float) -> None:
    assert 0 <= build(PACKAGE, name)(fraction * epochs, epochs) <= 1


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ({"name": "MultiStep", "gamma": 0.0}, "gamma is 0.0: expected a number in"),
        (
            {"name": "MultiStep", "milestones": [-1]},
            r"milestones are \[-1\]: expected epochs of 0 or more",
        ),
        ({"name": "Step", "gamma": 2.0}, "gamma is 2.0"),
        ({"name": "Step", "step_size": 0}, "step_size is 0: expected more than 0"),
        ({"name": "Cosine", "warmup": 1.0}, r"warmup is 1.0: expected a number in \[0, 1\)"),
        ({"name": "Multistep"}, "did you mean 'MultiStep'"),
    ],
)
def test_schedule_rejects_bad_arguments(ref: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(PACKAGE, ref)


def test_fit_decays_the_learning_rate(train: Any, checkpoints: Path) -> None:
    _, history = train(checkpoints, epochs=4, schedule=MultiStep([1, 3], 0.5))
    assert [row["learning_rate"] for row in history] == [0.01, 0.005, 0.005, 0.0025]


def test_fit_decays_at_the_step_of_a_fractional_milestone(train: Any, checkpoints: Path) -> None:
    _, history = train(checkpoints, epochs=2, schedule=MultiStep([0.9, 1.2], 0.1))
    # The last of five steps starts at 0.8.
    assert [row["learning_rate"] for row in history] == pytest.approx([0.01, 0.0001])
