"""Rewrite a file of parameters for this version."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter

from pipelines.migration.document import Document
from pipelines.migration.table import TABLE

COMPLETE = ("seed", "prepare_dataset", "extract_features", "vectorize_captions", "train_embedding", "register_model")
"""Keys that every params.yaml has, and no recipe has all of."""
LISTS = ("train_embedding.phases", "train_ranking_head.phases")
PIPELINE = "pipeline: 'embedding' is new"
COMMENT = re.compile(r"(?:^|\s)(#.*)$")


@dataclass(frozen=True)
class Migration:
    """The result for one file.

    Attributes:
        text: the file for this version; equal to the given one if nothing changed.
        values: its values.
        complete: whether the file is a ``params.yaml``, with a section for every stage; a recipe overlays one.
        done: one line for each change.
        notes: what a person should check or do.
    """

    text: str
    values: dict[str, Any]
    complete: bool
    done: list[str]
    notes: list[str]


def migrate(text: str) -> Migration:
    """Return the parameters of an earlier version as those of this one.

    Values that no change names stay as they are. A comment whose key is gone moves to the top of its section.

    Args:
        text: a ``params.yaml`` or a recipe of version 0.1 or later.

    Raises:
        ValueError: the text is no YAML, or not a mapping of sections.
    """
    yaml = YAML()
    yaml.preserve_quotes, yaml.width, yaml.Representer = True, 1000, _Representer
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        values = yaml.load(text)
    except YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    if not isinstance(values, CommentedMap):
        raise ValueError(f"expected sections such as 'train_embedding:', got {type(values).__name__}")
    document = Document(values, complete=all(key in values for key in COMPLETE))
    for change in TABLE:
        change.apply(document)
    if not document.done:
        return Migration(text, values, document.complete, [], [])
    for key in LISTS:
        _write_list(document, key)
    if PIPELINE in document.done:
        values.insert(1, "pipeline", values.pop("pipeline"))
    stream = StringIO()
    yaml.dump(values, stream)
    rewritten = _with_comments(stream.getvalue(), text)
    return Migration(rewritten, values, document.complete, document.done, document.notes)


class _Representer(RoundTripRepresenter):
    """Writes null as ``null``."""


_Representer.add_representer(
    type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
)


def _write_list(document: Document, key: str) -> None:
    """Turn a mapping by position into a list, or its positions into numbers where a recipe changes some entries."""
    entries = document.get(key)
    if not isinstance(entries, CommentedMap):
        return
    whole = document.complete or key in document.lists
    document.pop(key)
    document.put(
        key,
        CommentedSeq([entries[position] for position in sorted(entries, key=int)])
        if whole
        else CommentedMap({int(position): entry for position, entry in entries.items()}),
    )


def _with_comments(text: str, former: str) -> str:
    """Return ``text`` with the comments of ``former`` that it lacks, above the section that they were in."""
    kept = [comment for _, comment in _comments(text)]
    lines = [line for line in text.splitlines() if line.strip()]
    for section, comment in reversed(list(_comments(former))):
        if comment in kept:
            kept.remove(comment)
            continue
        starts = [number for number, line in enumerate(lines) if line.startswith(f"{section}:")]
        lines.insert(starts[0] if starts else 0, comment)
    return "\n".join(_spaced(lines)) + "\n"


def _spaced(lines: list[str]) -> Iterator[str]:
    """Yield lines with an empty one before each section and the comment above it."""
    for number, line in enumerate(lines):
        follows_block = number > 0 and lines[number - 1].startswith((" ", "-"))
        starts_block = re.match(r"[\w-]+:$", line) and number > 0 and not lines[number - 1].startswith("#")
        if (follows_block and not line.startswith((" ", "-"))) or starts_block:
            yield ""
        yield line


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """Yield each comment with the section that it is in or above."""
    waiting: list[str] = []
    section = ""
    for line in text.splitlines():
        if re.match(r"\w", line):
            section = line.partition(":")[0]
            yield from ((section, comment) for comment in waiting)
            waiting = []
        found = COMMENT.search(line)
        if found and line[: found.start(1)].count('"') % 2 == 0 and line[: found.start(1)].count("'") % 2 == 0:
            if line.startswith("#"):
                waiting.append(found[1])
            else:
                yield section, found[1]
    yield from ((section, comment) for comment in waiting)
