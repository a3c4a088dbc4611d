"""Sources of code: the files that modules import, hashed by meaning."""

import ast
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

LIBRARIES = ("bifocal", "runtime", "components")
NO_DATA = (".py", ".md", ".typed")
"""Suffixes of files in a package that its modules do not read."""
WITHOUT_MEANING = ("ctx", "kind", "type_comment")
"""Fields of syntax nodes that follow from others, or have no effect."""
IMPORTING = (ast.Import, ast.ImportFrom, ast.Constant)


@dataclass(frozen=True)
class Closure:
    """File hashes sorted by relative path, and sorted import names of packages."""

    files: Mapping[str, str]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """One file: the SHA-256 of its meaning, the names it imports, and the module of each name
    imported under ``TYPE_CHECKING`` only (``deferred``), which an importer of that name imports,
    see ``lazy_attributes``.
    """

    hash: str
    imports: frozenset[str]
    deferred: Mapping[str, str]


class SourceFiles:
    """Source files below a root, each read once; imports of the modules ``without`` are left
    out."""

    def __init__(self, root: Path, without: Iterable[str] = ()) -> None:
        self.without = tuple(without)
        self.file_of = cache(partial(_file_of, root))
        self.data = cache(partial(_data_files, root))
        self.module = cache(lambda file: read_module(source_path(root, file).read_bytes()))

    def closure(self, modules: Iterable[str]) -> Closure:
        """Return the files and packages that running ``modules`` needs.

        Imports in functions count, strings that name a module (``build("bifocal.losses", ...)``),
        and data files in a module's folder.
        """
        files, packages = dict[str, str](), set[str]()
        waiting, seen = list(modules), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or self._is_left_out(name):
                continue
            seen.add(name)
            if name.partition(".")[0] not in LIBRARIES:
                packages.add(name.partition(".")[0])
                continue
            parent, _, attribute = name.rpartition(".")
            waiting += [parent] if parent else []
            if file := self.file_of(name):
                files[file] = self.module(file).hash
                files |= self.data(file.rpartition("/")[0])
                waiting += self.module(file).imports
            elif parent and (package := self.file_of(parent)):
                deferred = self.module(package).deferred
                waiting += [deferred[attribute]] if attribute in deferred else []
        return Closure(
            dict(sorted(files.items())), tuple(sorted(packages - sys.stdlib_module_names))
        )

    def _is_left_out(self, module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in self.without)


def source_path(root: Path, name: str) -> Path:
    """Return the path of a source file; in a wheel, ``root`` is the folder ``_packages`` of the
    package ``bifocal``."""
    in_wheel = root.name == "_packages" and name.partition("/")[0] == "bifocal"
    return (root.parents[1] if in_wheel else root) / name


def _file_of(root: Path, module: str) -> str | None:
    base = module.replace(".", "/")
    return next(
        (
            name
            for name in (f"{base}.py", f"{base}/__init__.py")
            if source_path(root, name).is_file()
        ),
        None,
    )


def _data_files(root: Path, folder: str) -> dict[str, str]:
    return {
        f"{folder}/{path.name}": sha256(path.read_bytes()).hexdigest()
        for path in source_path(root, folder).iterdir()
        if path.is_file() and path.suffix not in NO_DATA
    }


@cache
def read_module(source: bytes) -> Module:
    """Return the meaning and the imports of a file."""
    tree = ast.parse(source)
    deferred = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    modules = {
        alias.name: statement.module
        for node in deferred
        for statement in node.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }
    words, names = list[str](), list[str]()
    _append_meaning(
        tree, words, names, {id(statement) for node in deferred for statement in node.body}
    )
    return Module(sha256("\0".join(words).encode()).hexdigest(), frozenset(names), modules)


def _imported(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_module(node.value):
        return [node.value]
    return ()


def _names_module(text: str) -> bool:
    return text.partition(".")[0] in LIBRARIES and all(
        part.isidentifier() for part in text.split(".")
    )


def _append_meaning(
    node: ast.AST, words: list[str], names: list[str], deferred: Container[int]
) -> None:
    """Append the code of ``node`` without docstrings to ``words``, and its imports to ``names``."""
    # Not ast.dump, which differs between Pythons. Imports of the statements with an id in
    # ``deferred`` do not count.
    words.append(type(node).__name__)
    if type(node) in IMPORTING:
        names += _imported(node)
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list) and value:
            words.append(field)
            for entry in [entry for entry in value if not _is_docstring(entry)] or [ast.Pass()]:
                if isinstance(entry, ast.AST):
                    _append_meaning(entry, words, [] if id(entry) in deferred else names, deferred)
                else:
                    words.append(repr(entry))
            words.append("]")
        elif isinstance(value, ast.AST) and field not in WITHOUT_MEANING:
            words.append(field)
            _append_meaning(value, words, names, deferred)
        elif value not in (None, []) and field not in WITHOUT_MEANING:
            words += (field, repr(value))
    words.append(")")


def _is_docstring(statement: object) -> bool:
    """Whether a statement is a string, which has no effect: a docstring, also one of an
    attribute."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
