"""YAML above the limits is refused before its values are built."""

import time

import pytest
import yaml

from runtime.parameters.yaml_text import load_yaml

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join(10 * [f'*a{level - 1}'])}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 5: more than 100,000 values"),
        ("[" * 200 + "]" * 200, "more than 100 levels"),
        ("a:\n" + "\n".join(" " * level + "- " for level in range(150)), "more than 100 levels"),
        ("x: " + "y" * 2**20, "1,048,579 characters, more than 1,048,576"),
        ("[" + "0," * 200_000 + "]", "more than 100,000 values"),
    ],
)
def test_a_text_above_a_limit_is_refused_at_once(text: str, message: str) -> None:
    start = time.monotonic()
    with pytest.raises(yaml.YAMLError, match=message):
        load_yaml(text)
    assert time.monotonic() - start < 10


def test_aliases_within_the_limits_are_those_of_pyyaml() -> None:
    text = "base: &base {a: 1, b: [2, 3]}\nother: {<<: *base, b: &list [4]}\nthird: [*list, *base]"
    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml("") is None
