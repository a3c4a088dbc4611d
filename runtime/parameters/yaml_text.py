"""YAML with limits: a small file may stand for more values than the memory holds."""

from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Safe loader of libyaml, ten times faster than the loader in Python, which PyYAML has everywhere."""
MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES = 2**20, 100, 100_000


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML, is above 1 MiB or nested deeper than 100 levels, or its aliases stand for
            more than 100,000 values.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"{len(text):,} characters, more than {MAX_CHARACTERS:,}")
    sizes: dict[str, int] = {}  # values below each anchor, with the values of aliases
    groups: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            groups.append((event.anchor, 1))
            if len(groups) > MAX_DEPTH:
                raise yaml.YAMLError(f"{_line(event)}: more than {MAX_DEPTH} levels")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = groups.pop()
        elif isinstance(event, yaml.AliasEvent):
            anchor, size = None, sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        outer, total = groups[-1]
        groups[-1] = outer, total + size
        if total + size > MAX_VALUES:
            raise yaml.YAMLError(f"{_line(event)}: more than {MAX_VALUES:,} values, with those that aliases stand for")
    return yaml.load(text, LOADER)


def _line(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1 if event.start_mark else 0}"
