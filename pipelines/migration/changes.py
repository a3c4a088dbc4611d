"""Kinds of changes between two versions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pipelines.migration.document import MISSING, Document


@dataclass(frozen=True)
class Change(ABC):
    """One change of the parameters.

    Attributes:
        version: the version that made it.
    """

    version: str

    @abstractmethod
    def apply(self, document: Document) -> None:
        """Change the document, and record it."""


@dataclass(frozen=True)
class Renamed(Change):
    """A key has another name or another place, and the same value."""

    key: str
    now: str

    def apply(self, document: Document) -> None:
        value = document.pop(self.key)
        if value is not MISSING:
            document.put(self.now, value)
            document.done.append(f"{self.key} -> {self.now}")


@dataclass(frozen=True)
class Converted(Change):
    """Keys are replaced by others with other values.

    Attributes:
        keys: former keys.
        now: the replacement, for people.
        convert: gets the values of the keys that the document has, and edits it.
    """

    keys: tuple[str, ...]
    now: str
    convert: Callable[[Document, Mapping[str, Any]], None]

    def apply(self, document: Document) -> None:
        before = deepcopy(document.values)
        values = {key: document.pop(key) for key in self.keys}
        present = {key.rpartition(".")[2]: value for key, value in values.items() if value is not MISSING}
        if present:
            self.convert(document, present)
        if document.values != before:
            former = ", ".join(key for key, value in values.items() if value is not MISSING)
            document.done.append(f"{former} -> {self.now}")


@dataclass(frozen=True)
class Adjusted(Change):
    """Values that this version does not accept together.

    Attributes:
        adjust: edits the document, and returns what it did; empty if nothing had to be done.
    """

    adjust: Callable[[Document], str]

    def apply(self, document: Document) -> None:
        line = self.adjust(document)
        if line:
            document.done.append(line)


@dataclass(frozen=True)
class RenamedPart(Change):
    """A part has another name; everywhere, or in one place where parts of two kinds had the same name."""

    part: str
    now: str
    place: str = ""

    def apply(self, document: Document) -> None:
        for where, reference in references(document.values):
            if reference.get("name") == self.part and where.startswith(self.place):
                reference["name"] = self.now
                document.done.append(f"{where}: {self.part} -> {self.now}")


@dataclass(frozen=True)
class RenamedArgument(Change):
    """An argument of a part has another name; ``part`` is the present name of the part."""

    part: str
    argument: str
    now: str

    def apply(self, document: Document) -> None:
        for where, reference in references(document.values):
            if reference.get("name") == self.part and self.argument in reference:
                reference[self.now] = reference.pop(self.argument)
                document.done.append(f"{where}: {self.argument} -> {self.now}")


@dataclass(frozen=True)
class RemovedArgument(Change):
    """A part has an argument no longer, because its value would have no effect; ``part`` is its present name."""

    part: str
    argument: str

    def apply(self, document: Document) -> None:
        for where, reference in references(document.values):
            if reference.get("name") == self.part and self.argument in reference:
                del reference[self.argument]
                document.done.append(f"{where}: {self.argument} removed")


@dataclass(frozen=True)
class Added(Change):
    """A key that a ``params.yaml`` must have since this version; a recipe needs none."""

    key: str
    value: Any

    def apply(self, document: Document) -> None:
        if document.complete and document.get(self.key) is MISSING:
            document.put(self.key, self.value)
            document.done.append(f"{self.key}: {self.value!r} is new")


def references(value: Any, where: str = "") -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yield the mappings with a name, at any depth, with their dotted keys."""
    if isinstance(value, MutableMapping):
        if isinstance(value.get("name"), str):
            yield where, value
        for key, entry in value.items():
            yield from references(entry, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from references(entry, f"{where}.{index}")
