"""Remember results of simulations: recipes of one system share them."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` with its results kept in memory, by the text of its arguments: they need no hash.

    Example:
        >>> squared = remembered(lambda values: [value**2 for value in values])
        >>> squared([1, 2]) is squared([1, 2])
        True
    """
    results: dict[str, Any] = {}

    @wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        key = repr((args, sorted(kwargs.items())))
        if key not in results:
            results[key] = function(*args, **kwargs)
        result: R = results[key]
        return result

    return remembering
