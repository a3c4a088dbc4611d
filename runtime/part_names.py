"""Names of parts and of their arguments, read from the sources: a wrong name is reported before
torch is imported."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import bifocal
from bifocal.registry import REGISTERED, split, suggest

Place = tuple[str, ast.ClassDef]
"""A module, and a class in it."""


@cache
def places(module: str) -> dict[str, Place]:
    """Return the classes of the library that a module defines or imports, by name."""
    found = dict[str, Place]()
    for node in _body(module):
        if isinstance(node, ast.ClassDef):
            found[node.name] = module, node
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("bifocal."):
            known = places(str(node.module))
            imported = [alias for alias in node.names if alias.name in known]
            found |= {alias.asname or alias.name: known[alias.name] for alias in imported}
    return found


def part_names(package: str) -> set[str]:
    """Return the names of the parts of a package of the library."""
    for node in _body(package):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return {name for name in places(package) if not name.startswith("_")}


def arguments(place: Place) -> set[str] | None:
    """Return the names of a class's arguments; None if the source does not list them."""
    module, node = place
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            signature = part.args
            known = {argument.arg for argument in (*signature.args[1:], *signature.kwonlyargs)}
            return None if signature.kwarg or signature.vararg else known
    bases = [places(module).get(ast.unparse(base)) for base in node.bases]
    inherited = [None if base is None else arguments(base) for base in bases]
    if not any("dataclass" in ast.unparse(mark) for mark in node.decorator_list):
        return inherited[0] if len(inherited) == 1 else None
    own = {
        ast.unparse(part.target)
        for part in node.body
        if isinstance(part, ast.AnnAssign)
        and not re.search("ClassVar|init=False", ast.unparse(part))
    }
    return own.union(*filter(None, inherited))


def wrong_names(package: str, ref: Any) -> Iterator[str]:
    """Yield the wrong names in a reference to a part of the library; ``bifocal.registry.check``
    finds them too, also in parts among its arguments, but imports the package."""
    try:
        name, given = split(ref)
    except ValueError:  # no reference: the types of values are checked elsewhere
        return
    if not package.startswith("bifocal.") or ":" in name or REGISTERED:
        return
    known = part_names(package)
    if name not in known:
        yield f"{package} has no {name!r}; {suggest(name, known)}"
        return
    accepted = arguments(places(package)[name])
    for argument in given:
        if accepted is not None and argument not in accepted:
            yield f"{name} takes no {argument!r}; {suggest(argument, accepted)}"


def _body(module: str) -> list[ast.stmt]:
    path = Path(bifocal.__file__).parent.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_bytes()).body
