"""Attributes of a package that are imported when they are first used.

A package whose light modules must load without torch defines its heavy attributes in this way.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562).

    Args:
        package: ``__name__`` of the package.
        modules: module of each attribute, by the attribute's name.

    Example:
        >>> lazy_attributes("bifocal.lazy", {"sqrt": "math"})("sqrt")(9)
        3.0
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
