"""Two processes of a training that differ, that are late, and that wait for a validation."""

import re

import pytest

from tests.two_processes import TRAIN, pair

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (
            '{"inputs.features": "ab"[rank], "code": "c"}',
            "inputs.features of rank 1 is b, of rank 0 a: all processes need the same inputs",
        ),
        ('{"code": "c"} if rank else {}', "code of rank 1 is c, of rank 0 none"),
        (
            '{"problem": "a/b differs"} if rank else {"code": "c"}',
            "rank 1 of the training: a/b differs",
        ),
        (
            '{"torch": str(rank)}',
            "torch of rank 1 is 1, of rank 0 0",
        ),
    ],
)
def test_processes_that_differ_do_not_train(identity: str, message: str) -> None:
    for code, error in pair(f"distributed.identity = {identity}\nlate = int\n{TRAIN}"):
        assert code == 1, error
        assert message in error


def test_any_difference_is_found_by_both_and_nothing_else() -> None:
    found = pair("""
with torchrun_world() as (world, _):
    for seed in range(50):
        generator = random.Random(seed)
        values = [{name: generator.choice("xy") for name in generator.sample("abc", 2)} for _ in "ab"]
        values = generator.choice([values, [values[0], dict(reversed(values[0].items()))]])
        try:
            world.check_equal(values[rank])
            differs = False
        except ValueError:
            differs = True
        assert differs == (values[0] != values[1]), (seed, values)
""")
    assert [code for code, _ in found] == [0, 0], found


def test_a_late_process_is_named_and_ends_the_others_within_the_limit_of_a_step() -> None:
    (code, error), _ = pair(f"late = lambda: rank and time.sleep(8)\n{TRAIN}")
    assert code == 1
    assert re.search(r"waiting for rank 1 since \d\d:\d\d:\d\d\n", error)
    assert "OSError: rank 1 did not answer since" in error
    assert "it resumes at the last checkpoint" in error


def test_a_validation_may_take_longer_than_a_step() -> None:
    late = "world.broadcast_from_main(lambda: time.sleep(5))"
    (first, _), (second, error) = pair(TRAIN.replace("late()", late))
    assert (first, second) == (0, 0)
    assert "waiting for rank 0 since" in error
