"""Identity of a component: the files that it imports, hashed by meaning, and the versions of the
packages."""

import ast
import importlib.metadata
import json
import re
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.spec import Component

ROOT = Path(__file__).parent.parent
PYTHON = "python"
DISTRIBUTIONS = {
    "PIL": ("pillow",),
    "faiss": ("faiss-cpu",),
    "huggingface_hub": ("huggingface-hub", "huggingface_hub"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "sklearn": ("scikit-learn",),
    "stop_words": ("stop-words", "stop_words"),
}
"""Distributions that have a package, where the names differ."""
WITHOUT_EFFECT = {
    "click",
    "cv2",
    "kubeflow",
    "kubernetes",
    "open_clip",
    "pillow_heif",
    "pydantic",
    "triton",
    "urllib3",
    "yaml",
}
"""Packages that are not in keys: packages that parse and submit; triton, which torch pins; OpenCV
(for ``Proposals``), open_clip and pillow-heif, which the images do not have, so that a cluster and
a laptop share a cache."""
LIBRARIES = ("bifocal", "runtime", "components")
INFRASTRUCTURE = (
    "runtime.artifacts",
    "runtime.identity",
    "runtime.mlflow",
    "runtime.s3",
    "runtime.spec",
    "bifocal.progress",
)
"""Modules that declare, store, track and print: no output of a stage depends on them, so the
closure ends here."""
NO_DATA = (".py", ".md", ".typed")
"""Suffixes of files in a package that its modules do not read."""
WITHOUT_MEANING = ("ctx", "kind", "type_comment")
"""Fields of syntax nodes that follow from others, or have no effect."""
IMPORTING = (ast.Import, ast.ImportFrom, ast.Constant)


@dataclass(frozen=True)
class Closure:
    """Sources of a stage: file hashes sorted by relative path, and sorted import names of
    packages."""

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


@cache
def sources(component: Component) -> Closure:
    """Return the files and packages of the component's modules and of all their imports."""
    return import_closure(ROOT, component.entry_modules, _files())


def source_hash(component: Component) -> str:
    """SHA-256 over the meaning of the component's source files, committed or not: without
    docstrings and comments."""
    return _digest(dict(sources(component).files))


def packages(component: Component) -> tuple[str, ...]:
    """Import names of the packages whose versions can change the component's outputs."""
    return tuple(name for name in sources(component).packages if name not in WITHOUT_EFFECT)


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return versions of packages ("none" if missing) and Python, without local part and patch
    level of Python, so that machines with different cards share the cache.
    """
    versions = {name: _installed_version(name) for name in names}
    return {PYTHON: f"{sys.version_info.major}.{sys.version_info.minor}", **versions}


def _installed_version(name: str) -> str:
    for distribution in DISTRIBUTIONS.get(name, (name,)):
        try:
            return importlib.metadata.version(distribution).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"


def pinned_versions(names: Iterable[str], image: str, root: Path = ROOT) -> dict[str, str]:
    """Return the version of each package that ``requirements/<image>.txt`` pins for the image,
    "none" without one."""
    text = (root / "requirements" / f"{image}.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;+]+)", text, flags=re.MULTILINE))
    return {
        name: next(
            (pins[entry] for entry in DISTRIBUTIONS.get(name, (name,)) if entry in pins), "none"
        )
        for name in names
    }


def user_modules(values: Any) -> dict[str, Path]:
    """Return the files of the imported modules that parts of ``values`` are named after, such as
    my_losses:MyLoss."""
    names = sorted(set(re.findall(r'"([\w.]+):\w+"', json.dumps(values, default=str))))
    files = {name: str(getattr(sys.modules.get(name), "__file__", "")) for name in names}
    return {name: Path(file) for name, file in files.items() if file.endswith(".py")}


def image_key(component: Component) -> str:
    """Key of a component in its image: sources and pinned versions, the same on every machine with
    these files."""
    return _digest(source_hash(component), pinned_versions(packages(component), component.image))


def _digest(*parts: object) -> str:
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class SourceFiles:
    """Source files below a root; each is read once."""

    def __init__(self, root: Path) -> None:
        self.file_of = cache(partial(_file_of, root))
        self.data = cache(partial(_data_files, root))
        self.module = cache(lambda file: read_module(source_path(root, file).read_bytes()))


@cache
def _files() -> SourceFiles:
    return SourceFiles(ROOT)


def import_closure(root: Path, modules: Iterable[str], read: SourceFiles | None = None) -> Closure:
    """Return the files and packages that running ``modules`` needs. Imports in functions count,
    strings that name a module (``build("bifocal.losses", ...)``), and data files in a module's
    folder.
    """
    read = read or SourceFiles(root)
    files, packages = dict[str, str](), set[str]()
    waiting, seen = list(modules), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or _is_infrastructure(name):
            continue
        seen.add(name)
        if name.partition(".")[0] not in LIBRARIES:
            packages.add(name.partition(".")[0])
            continue
        parent, _, attribute = name.rpartition(".")
        waiting += [parent] if parent else []
        if file := read.file_of(name):
            files[file] = read.module(file).hash
            files |= read.data(file.rpartition("/")[0])
            waiting += read.module(file).imports
        elif parent and (package := read.file_of(parent)):
            deferred = read.module(package).deferred
            waiting += [deferred[attribute]] if attribute in deferred else []
    return Closure(dict(sorted(files.items())), tuple(sorted(packages - sys.stdlib_module_names)))


def source_path(root: Path, name: str) -> Path:
    """Return the path of a source file; in a wheel, ``root`` is the folder ``_packages`` of the
    package ``bifocal``."""
    in_wheel = root.name == "_packages" and name.partition("/")[0] == "bifocal"
    return (root.parents[1] if in_wheel else root) / name


def _is_infrastructure(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in INFRASTRUCTURE)


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
