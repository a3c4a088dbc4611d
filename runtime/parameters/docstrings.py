"""Descriptions of parts, read from their docstrings (Google style)."""

import inspect
import re


def summary(part: type) -> str:
    """First line of the docstring of a class."""
    return (inspect.getdoc(part) or "").partition("\n")[0]


def argument_descriptions(part: type) -> dict[str, str]:
    """Description of each constructor argument, from ``Args:`` in the docstrings of a class and its bases.

    Example:
        >>> class Loss:
        ...     '''Triplet loss.
        ...
        ...     Args:
        ...         margin: of the hinge,
        ...             in units of the score.
        ...     '''
        >>> argument_descriptions(Loss)
        {'margin': 'of the hinge, in units of the score.'}
    """
    descriptions: dict[str, str] = {}
    for base in reversed(part.__mro__):
        descriptions |= _parse_args(inspect.cleandoc(base.__doc__ or ""))
    return descriptions


def _parse_args(docstring: str) -> dict[str, str]:
    lines = docstring.splitlines()
    if "Args:" not in lines:
        return {}
    descriptions: dict[str, str] = {}
    names: list[str] = []
    for line in lines[lines.index("Args:") + 1 :]:
        if line and not line.startswith(" "):  # the next section
            break
        entry = re.match(r"    (\w+(?:, \w+)*): (.*)", line)
        if entry:
            names = entry[1].split(", ")
            descriptions |= dict.fromkeys(names, entry[2])
        else:
            for name in names:
                descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions
