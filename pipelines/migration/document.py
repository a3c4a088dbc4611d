"""A file of parameters while it is migrated: values by dotted keys, and what was done to them."""

from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

MISSING: Final = object()
LINE = 90
"""Characters of a mapping that is written on one line."""


class Document:
    """Values of a ``params.yaml`` or a recipe.

    A list that a change writes into is a mapping by position here, as recipes may write it: ``phases.0.epochs``.

    Attributes:
        values: sections with their values, which the changes edit in place.
        complete: whether it is a ``params.yaml``; a recipe overlays one, so its parts and lists are incomplete.
        done: one line for each change.
        notes: what a person should check or do.
        lists: keys of lists that a recipe replaces as a whole.
    """

    def __init__(self, values: CommentedMap, complete: bool) -> None:
        self.values, self.complete = values, complete
        self.done: list[str] = []
        self.notes: list[str] = []
        self.lists: set[str] = set()
        self._gap = ("", 0)

    def get(self, key: str) -> Any:
        """Return the value of a dotted key, or ``MISSING``."""
        value: Any = self.values
        for name in key.split("."):
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, Mapping) and name in value:
                value = value[name]
            else:
                return MISSING
        return value

    def pop(self, key: str) -> Any:
        """Remove a dotted key and return its value, or ``MISSING``."""
        parent, _, name = key.rpartition(".")
        section = self.get(parent) if parent else self.values
        if not isinstance(section, CommentedMap) or name not in section:
            return MISSING
        self._gap = (parent, list(section).index(name))
        return section.pop(name)

    def put(self, key: str, value: Any) -> None:
        """Set a dotted key; a mapping without a name is merged into the one that is there.

        A new key stands where the last one was removed, if that was in the same section.
        """
        parent, _, name = key.rpartition(".")
        section = self.get(parent) if parent else self.values
        if not isinstance(section, CommentedMap):
            self.put(parent, CommentedMap())
            section = self.get(parent)
        former = section.get(name)
        if isinstance(former, CommentedMap) and isinstance(value, Mapping) and "name" not in value:
            former.update(_styled(value))
            return
        if isinstance(value, Mapping):  # nested flow mappings are hard to read
            section.fa.set_block_style()
        if name in section or parent != self._gap[0]:
            section[name] = _styled(value)
        else:
            section.insert(self._gap[1], name, _styled(value))
            self._gap = (parent, self._gap[1] + 1)

    def part(self, name: str, arguments: Mapping[str, Any], default: str) -> dict[str, Any]:
        """Return a reference to a part; without its name where a recipe changes arguments of the ``default`` alone."""
        named = {} if name == default and not self.complete else {"name": name}
        return {**named, **arguments}


def _styled(value: Any) -> Any:
    """Return new mappings and lists as those of a file, short ones on one line."""
    if isinstance(value, list) and not isinstance(value, CommentedSeq):
        value = CommentedSeq([_styled(entry) for entry in value])
        if not any(isinstance(entry, Mapping) for entry in value):
            value.fa.set_flow_style()
    elif isinstance(value, Mapping) and not isinstance(value, CommentedMap):
        value = CommentedMap({key: _styled(entry) for key, entry in value.items()})
        if len(str(dict(value))) < LINE and not any(isinstance(entry, Mapping) for entry in value.values()):
            value.fa.set_flow_style()
    return value
