"""What a test draws from the global generators does not depend on the tests before it."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

Draws = tuple[float, float, float]
EXAMPLES: set[Draws] = set()


def draws() -> Draws:
    """Draw once from each global generator."""
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002


def after_seed(name: str, config: pytest.Config) -> Draws:
    """Seed by a name, and return the first draws."""
    hooks = config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    hooks.seed_by(name)
    return draws()


@pytest.fixture(scope="module", params=["a", "b"])
def drawn_by_fixture() -> Draws:
    return draws()


def test_a_test_draws_by_its_name(request: pytest.FixtureRequest) -> None:
    drawn = draws()
    assert drawn == after_seed(request.node.nodeid, request.config)
    assert drawn != after_seed(f"{request.node.nodeid} and more", request.config)


def test_a_fixture_draws_by_its_name_and_parameter(
    drawn_by_fixture: Draws, request: pytest.FixtureRequest
) -> None:
    index = ["a", "b"].index(request.node.callspec.params["drawn_by_fixture"])
    name = f"tests/test_draws.py::drawn_by_fixture[{index}]"
    assert drawn_by_fixture == after_seed(name, request.config)


@given(st.integers())
def test_each_example_begins_with_the_same_draws(number: int) -> None:
    EXAMPLES.add(draws())
    assert len(EXAMPLES) == 1
