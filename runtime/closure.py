"""Import closure: the files and packages that a stage runs, found in the sources without importing them."""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIBRARIES = ("bifocal", "runtime", "components")
INFRASTRUCTURE = (
    "runtime.artifacts", "runtime.closure", "runtime.identity", "runtime.mlflow", "runtime.s3", "runtime.spec",
    "bifocal.progress",
)  # fmt: skip
"""Modules that declare, store, track and print: no output of a stage depends on them, so the closure ends here."""
NO_DATA = (".py", ".md", ".typed")
"""Suffixes of files in a package that are no data of its modules."""


@dataclass(frozen=True)
class Closure:
    """Sources of a stage.

    Attributes:
        files: modules and their data files, relative to the root of the repository, sorted.
        packages: import names of all other packages, without the standard library, sorted.
    """

    files: tuple[str, ...]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Imports:
    """Imports of one file.

    Attributes:
        modules: names of modules; for ``from package import name`` also ``package.name``, which may be no module.
        deferred: module of each name imported under ``TYPE_CHECKING`` only, see ``lazy_attributes``: the file that
            imports such a name from this one imports that module.
    """

    modules: frozenset[str]
    deferred: dict[str, str]


def import_closure(root: Path, modules: Iterable[str]) -> Closure:
    """Return the files and packages that importing and running ``modules`` needs.

    Every import counts, also one in a function. A string that names a module counts as an import, because parts are
    built by the name of their package: ``build("bifocal.losses", ...)``. Files of a package that are no modules, such
    as a style sheet, belong to each module in their folder.

    Args:
        root: folder of the libraries.
        modules: dotted names.
    """
    files, packages = set[str](), set[str]()
    waiting, seen = list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        if module in seen or _is_infrastructure(module):
            continue
        seen.add(module)
        if module.partition(".")[0] not in LIBRARIES:
            packages.add(module.partition(".")[0])
            continue
        parent, _, name = module.rpartition(".")
        waiting += [parent] if parent else []
        path = _file_of(root, module)
        if path is not None:
            files |= {file.relative_to(root).as_posix() for file in (path, *_data_files(path.parent))}
            waiting += _imports(path).modules
        elif parent and (package := _file_of(root, parent)):
            deferred = _imports(package).deferred
            waiting += [deferred[name]] if name in deferred else []
    return Closure(tuple(sorted(files)), tuple(sorted(packages - sys.stdlib_module_names)))


def _is_infrastructure(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in INFRASTRUCTURE)


def _file_of(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def is_versioned(path: Path) -> bool:
    """Whether a path in a library is a file that is no bytecode."""
    return path.is_file() and "__pycache__" not in path.parts


@cache
def _data_files(folder: Path) -> tuple[Path, ...]:
    return tuple(path for path in folder.iterdir() if is_versioned(path) and path.suffix not in NO_DATA)


@cache
def _imports(path: Path) -> Imports:
    tree = ast.parse(path.read_bytes(), str(path))
    deferred = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    modules = {
        alias.name: statement.module
        for node in deferred
        for statement in node.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }
    run = [part for node in tree.body for part in (node.orelse if node in deferred else [node])]
    return Imports(frozenset(name for node in run for name in _imported(node)), modules)


def _imported(statement: ast.AST) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_module(node.value):
            yield node.value


def _names_module(text: str) -> bool:
    return text.partition(".")[0] in LIBRARIES and all(part.isidentifier() for part in text.split("."))
