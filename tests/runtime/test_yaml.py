"""YAML of parameters: limits, scalars as other readers have them, and errors of one line."""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from runtime.parameters import (
    ParameterError,
    dump_yaml,
    load,
    load_yaml,
    read_yaml,
)

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join(10 * [f'*a{level - 1}'])}]\n" for level in range(1, 12)
)


MERGES = BOMB.replace("[*", "{<<: [*").replace("]\n", "]}\n").replace("[x, x", "{x: [x, x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 5: more than 100,000 values"),
        (MERGES, "line 5: more than 100,000 values"),
        ("[" * 5000 + "]" * 5000, "the values are nested too deeply"),
        ("x: " + "y" * 2**18, "262,147 characters, more than 262,144"),
    ],
)
def test_a_text_above_a_limit_is_refused_at_once(text: str, message: str) -> None:
    start = time.process_time()
    with pytest.raises(YAMLError, match=message):
        load_yaml(text)
    assert time.process_time() - start < 10


def test_aliases_within_the_limits_are_those_of_pyyaml() -> None:
    text = "base: &base {a: 1, b: [2, 3]}\nother: {<<: *base, b: &list [4]}\nthird: [*list, *base]"
    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml("") is None


SCALARS = st.one_of(
    st.text("0123456789", min_size=1).map(lambda digits: f"0{digits}"),
    st.text("0123456789+-._eExobnaifNAIF", min_size=1, max_size=8),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(
        [
            "yes",
            "on",
            "n",
            "True",
            "tRUE",
            "~",
            "Null",
            ".inf",
            "-.INF",
            "+.inf",
            ".NaN",
            "1:30",
            "1_000",
        ]
    ),
)


@given(SCALARS)
@example("1e-3")
@example("5e-05")
@example("010")
@example("0o10")
def test_scalars_are_read_as_dvc_reads_them(text: str) -> None:
    try:
        expected = YAML(typ="safe").load(f"[ {text} ]")
    except Exception:
        with pytest.raises(YAMLError):
            load_yaml(f"[ {text} ]")
        return
    assert repr(load_yaml(f"[ {text} ]")) == repr(expected)


@given(
    st.one_of(
        SCALARS,
        st.text(st.characters(codec="utf-8")),
        st.floats(allow_nan=False),
        st.integers(),
        st.booleans(),
    )
)
@example("2026-11-27")
@example("=")
@example("<<")
def test_written_values_are_the_same_for_all_readers(value: object) -> None:
    text = dump_yaml({"key": value})
    assert load_yaml(text) == yaml.safe_load(text) == YAML(typ="safe").load(text) == {"key": value}


@given(st.text(max_size=30))
@example("*x")
@example("@team")
@example('"\\ud83d\\ude00"')
@example("!!int x")
@example("!!set {a}")
@example("&a [*a]")
@example("\ud800")
@example("9" * 5000)
def test_a_text_has_a_value_that_json_holds_or_is_one_error_of_one_line(text: str) -> None:
    problem, value = "", None
    try:
        value = load_yaml(text)
    except YAMLError as error:
        problem = str(error)
    assert "\n" not in problem
    json.dumps(value)
    with suppress(ParameterError):
        load(Path(__file__).parents[2] / "params.yaml", [], [f"register_model.model={text}"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: {x: 1}\nb: 2\na: {y: 1}\n", "line 3: found duplicate key 'a'"),
        (b"a: {b: 1,\n  b: 1}", "line 2: found duplicate key 'b'"),
        (b"a: [{b: 1, 'b': 2}]", "line 1: found duplicate key 'b'"),
        (b"name: caf\xe9\n", r"UTF-8 \(the byte 0xe9 at position 9\): save it with this encoding"),
        (b"\xff\xfea\x00", "UTF-8"),
        (
            b"a: !!python/name:os x",
            "line 1: could not determine a constructor for .*python/name:os",
        ),
    ],
)
def test_a_file_that_is_not_read_names_itself_and_the_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_bytes(content)
    with pytest.raises(ParameterError, match=rf"recipe\.yaml is not .*{message}"):
        read_yaml(file)


def test_a_merged_key_is_no_repeated_key() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a"
    assert load_yaml(text) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 1, "y": 2}}
