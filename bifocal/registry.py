"""Parts by name: ``build("bifocal.losses", "HardestTripletLoss", margin=0.2)``.

A part is a public class of one of the packages below; its module is imported by the package's ``__init__``.
``params.yaml`` writes the Python name itself, so that a search finds it.
"""

import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the known word that is closest to ``word``, and all of them."""
    names = sorted(known)
    by_lower_case = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.5)
    listing = f"has {', '.join(names) or 'none'}"
    return f"did you mean {by_lower_case[close[0]]!r}? It {listing}" if close else f"it {listing}"


def parts(package: str) -> dict[str, type]:
    """Every part of ``package`` by its name."""
    library = package.partition(".")[0]
    return {
        name: part
        for name, part in vars(import_module(package)).items()
        if inspect.isclass(part) and part.__module__.partition(".")[0] == library and not name.startswith("_")
    }


def find(package: str, name: str) -> type:
    """The class called ``name`` in ``package``.

    Raises:
        ValueError: there is none; the message names the nearest.
    """
    known = parts(package)
    if name not in known:
        raise ValueError(f"{package} has no {name!r}; {nearest(name, known)}")
    return known[name]


def check(package: str, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless ``name`` is a part of ``package`` and takes all of ``arguments``.

    Builds nothing, so it is cheap enough to run before any work starts.
    """
    accepted = inspect.signature(find(package, name)).parameters
    for argument in arguments:
        if argument not in accepted:
            raise ValueError(f"{name} takes no {argument!r}; {nearest(argument, accepted)}")


def build(package: str, name: str, **arguments: Any) -> Any:
    """Build the part ``name`` of ``package``.

    Raises:
        ValueError: the name or an argument is unknown; the message names the nearest.
    """
    check(package, name, arguments)
    return find(package, name)(**arguments)
