"""Parts by name: ``build("bifocal.losses", {"name": "HardestTripletLoss", "margin": 0.3})``.

A part is a public class that a package's ``__init__`` imports or a module's ``__all__`` names, or
that ``register`` adds, or any class of an importable module, named ``module:Class``. A reference to
a part is its name, a mapping ``{"name": ..., argument: value}``, or an object with the attributes
``name`` and ``arguments``. A class whose arguments are parts declares the package of each, and
receives built objects:
``parts: ClassVar[Mapping[str, str]] = {"losses": "bifocal.losses"}``.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T", bound=type)
REGISTERED: dict[str, dict[str, type]] = {}
"""Parts outside the library, by package and name."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the known word closest to ``word``, and all known
    words."""
    names = sorted(known)
    by_lower_case = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.5)
    available = f"Available: {', '.join(names) or 'none'}."
    return f"did you mean {by_lower_case[close[0]]!r}? {available}" if close else available


class CheckedByConstruction:
    """Base of the parts whose constructor rejects invalid arguments and does no work, so that it is
    the check."""

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Explain arguments that the constructor rejects."""
        try:
            cls(**arguments)
        except ValueError as error:
            yield str(error)


def registered(package: str) -> dict[str, type]:
    """Return every part of ``package`` by its name."""
    return _library_parts(package) | REGISTERED.get(package, {})


def register(package: str) -> Callable[[T], T]:
    """Decorate a class outside the library, which then is a part of ``package`` in this process.

    A process that loads a model with such a class must register it first. A class of the same name
    is replaced.

    Example::

        @register("bifocal.losses")
        class MyLoss(nn.Module): ...
    """

    def add(part: T) -> T:
        if part.__name__ in _library_parts(package):
            raise ValueError(
                f"{package} has a {part.__name__} already: give your class another name"
            )
        REGISTERED.setdefault(package, {})[part.__name__] = part
        return part

    return add


def _library_parts(package: str) -> dict[str, type]:
    library, module = package.partition(".")[0], import_module(package)
    public = getattr(module, "__all__", vars(module))
    return {
        name: part
        for name, part in vars(module).items()
        if name in public
        and inspect.isclass(part)
        and part.__module__.partition(".")[0] == library
        and not name.startswith("_")
        and not inspect.isabstract(part)
    }


def get(package: str, name: str) -> type:
    """Return the class called ``name`` of ``package``, or ``module:Class`` of anywhere; an error
    names the nearest."""
    module, colon, outside = name.partition(":")
    if colon:
        return _class_of(module, outside)
    known = registered(package)
    if name not in known:
        raise ValueError(f"{package} has no {name!r}; {suggest(name, known)}")
    return known[name]


def _class_of(module: str, name: str) -> type:
    if str(Path.cwd()) not in sys.path:  # a console script does not search the present folder
        sys.path.append(str(Path.cwd()))
    try:
        classes = {
            key: value
            for key, value in vars(import_module(module)).items()
            if inspect.isclass(value)
        }
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ValueError(
            f"no module {module!r}: it is neither installed nor a file in {Path.cwd()}"
        ) from error
    if name not in classes:
        raise ValueError(f"module {module} has no class {name!r}; {suggest(name, classes)}")
    return classes[name]


def split(ref: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a reference to a part."""
    if isinstance(ref, str):
        return ref, {}
    if isinstance(ref, Mapping) and isinstance(ref.get("name"), str):
        return ref["name"], {name: value for name, value in ref.items() if name != "name"}
    if hasattr(ref, "name") and hasattr(ref, "arguments"):
        return ref.name, dict(ref.arguments)
    raise ValueError(
        f"got {ref!r}, expected the name of a part or a mapping such as {{name: ..., argument: "
        "value}"
    )


def as_mapping(ref: Any) -> dict[str, Any]:
    """Return a reference to a part as ``{"name": ..., argument: value}``, which JSON can hold."""
    name, arguments = split(ref)
    return {"name": name, **arguments}


def check_range(interval: str, **values: float | None) -> None:
    """Raise ``ValueError`` unless each argument that is not None is in an interval such as "[0, 1)"
    or "(0, inf)"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    ends = [end for end, bracket in ((low, interval[0]), (high, interval[-1])) if bracket in "[]"]
    expected = f"a number in {interval}"
    if high == math.inf:
        expected = f"{low:g} or more" if ends else f"more than {low:g}"
    for name, value in values.items():
        if not (value is None or low < value < high or value in ends):
            raise ValueError(f"{name} is {value}: expected {expected}")


def check(package: str, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless ``name`` is a part of ``package`` that takes all of
    ``arguments``; build nothing."""
    accepted = inspect.signature(get(package, name)).parameters
    for argument in arguments:
        if argument not in accepted:
            raise ValueError(f"{name} takes no {argument!r}; {suggest(argument, accepted)}")


def all_arguments(package: str, ref: Any) -> dict[str, Any]:
    """Return the arguments in a reference to a part of ``package``, with its class's defaults."""
    name, arguments = split(ref)
    parameters = inspect.signature(get(package, name)).parameters.values()
    return {
        p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty
    } | arguments


def build(package: str, ref: Any, /, **available: Any) -> Any:
    """Build the part of ``package`` that ``ref`` names.

    Each of the ``available`` values, such as a sorter or a seed, is passed if the signature of the
    part, or of a part among its arguments, accepts it. An argument of ``ref`` wins.
    """
    name, arguments = split(ref)
    check(package, name, arguments)
    part = get(package, name)
    packages: Mapping[str, str] = getattr(part, "parts", {})
    for argument in packages.keys() & arguments.keys():
        arguments[argument] = _build_nested(packages[argument], arguments[argument], available)
    accepted = inspect.signature(part).parameters
    return part(**{key: value for key, value in available.items() if key in accepted} | arguments)


def _build_nested(package: str, value: Any, available: Mapping[str, Any]) -> Any:
    if isinstance(value, list | tuple):
        return [_build_nested(package, entry, available) for entry in value]
    is_ref = isinstance(value, str | Mapping) or (
        hasattr(value, "name") and hasattr(value, "arguments")
    )
    return build(package, value, **available) if is_ref else value


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` (PEP 562) of a package that imports heavy attributes at first use
    from ``modules`` of ``bifocal``.

    Example:
        >>> lazy_attributes("bifocal.registry", {"printable": "progress"})("printable")("a")
        'a'
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"bifocal.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
