"""A stage's key follows the meaning of its code, tested on the files of this repository."""

import ast
import io
import shutil
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bifocal.durable.sources import LIBRARIES, SourceFiles
from components.catalog import all_components
from runtime.identity import INFRASTRUCTURE

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.relative_to(ROOT).as_posix() for name in LIBRARIES for path in (ROOT / name).rglob("*.py")
)
STAGES = [stage for stage in all_components().values() if stage.has_parameters]
OTHER_OPERATOR: dict[type[ast.AST], Callable[[], ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
}
QUICK = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    for name in LIBRARIES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def before(copy: Path) -> dict[str, dict[str, str]]:
    return closures(copy)


def closures(root: Path) -> dict[str, dict[str, str]]:
    read = SourceFiles(root, INFRASTRUCTURE)
    return {stage.name: dict(read.closure(stage.entry_modules).files) for stage in STAGES}


def closures_with(copy: Path, module: str, text: str) -> dict[str, dict[str, str]]:
    """Return the closures while ``module`` has another text."""
    original = (copy / module).read_text()
    try:
        (copy / module).write_text(text)
        return closures(copy)
    finally:
        (copy / module).write_text(original)


def reworded(text: str, choose: Callable[[int], int]) -> str:
    """Return the text with another docstring and a further comment."""
    lines = text.splitlines(keepends=True)
    strings = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    ends = [
        token.start
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NEWLINE
    ]
    if ends:
        line, column = ends[choose(len(ends))]
        lines[line - 1] = lines[line - 1][:column] + "  # A comment.\n"
    if strings:
        node = strings[choose(len(strings))]
        assert node.end_lineno is not None
        indent = lines[node.lineno - 1][: node.col_offset]
        lines[node.lineno - 1 : node.end_lineno] = [f'{indent}"""Other words."""\n', "\n"]
    return "".join(lines)


def values_and_operators(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield the place of each number, operator and default: a node, its field, and the position in
    the field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "value", None
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER_OPERATOR:
            yield node, "op", None
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER_OPERATOR:
            yield node, "ops", 0
        elif isinstance(node, ast.arguments) and node.defaults:
            yield node, "defaults", 0


def changed(text: str, choose: Callable[[int], int]) -> str | None:
    """Return the text with another number, operator or default; None if it has none."""
    tree = ast.parse(text)
    places = list(values_and_operators(tree))
    if not places:
        return None
    node, field, position = places[choose(len(places))]
    value = getattr(node, field) if position is None else getattr(node, field)[position]
    if field == "defaults":
        new: object = ast.Constant(value="another default")
    else:
        new = OTHER_OPERATOR[type(value)]() if isinstance(value, ast.AST) else value + 1
    if position is None:
        setattr(node, field, new)
    else:
        getattr(node, field)[position] = new
    return ast.unparse(ast.fix_missing_locations(tree))


@QUICK
@given(module=st.sampled_from(MODULES), data=st.data())
def test_other_words_change_no_key(
    copy: Path, before: dict[str, dict[str, str]], module: str, data: st.DataObject
) -> None:
    text = reworded((ROOT / module).read_text(), lambda size: data.draw(st.integers(0, size - 1)))
    assert closures_with(copy, module, text) == before


@QUICK
@given(module=st.sampled_from(MODULES), data=st.data())
def test_another_value_or_operator_changes_the_keys_of_exactly_the_stages_that_reach_it(
    copy: Path, before: dict[str, dict[str, str]], module: str, data: st.DataObject
) -> None:
    text = changed((ROOT / module).read_text(), lambda size: data.draw(st.integers(0, size - 1)))
    if text is None:
        return
    after = closures_with(copy, module, text)
    assert {name for name in before if after[name] != before[name]} == {
        name for name, files in before.items() if module in files
    }


def test_another_layout_changes_no_key(before: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """The layout of ``ast.unparse``, which also leaves out comments."""
    for name in LIBRARIES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in MODULES:
        (tmp_path / name).write_text(ast.unparse(ast.parse((ROOT / name).read_text())))
    assert closures(tmp_path) == before
