"""Types and ranges of parameters in words."""

from collections.abc import Mapping
from typing import Any

NAMES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def type_text(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema, as pydantic makes it of one field, in a few words.

    Example:
        >>> type_text({"type": "integer", "minimum": 1})
        'integer ≥ 1'
        >>> type_text({"anyOf": [{"type": "array", "items": {"enum": ["train", "val"]}}, {"type": "null"}]})
        'list of train or val, or null'
    """
    if "anyOf" in schema:
        options = [type_text(option) for option in schema["anyOf"]]
        return (", or " if " or " in options[0] else " or ").join(options)
    if "$ref" in schema:
        return "part" if schema["$ref"].endswith("/ClassRef") else "group"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_plural(type_text(schema.get('items', {})))}"
    if schema.get("type") == "object":
        return "mapping"
    if schema.get("format") == "path":
        return "path"
    limits = [f"{sign} {schema[key]:,}" for key, sign in LIMITS.items() if key in schema]
    return " ".join([NAMES.get(schema.get("type", ""), "any value"), " and ".join(limits)]).strip()


def _plural(text: str) -> str:
    noun, space, limits = text.partition(" ")
    return f"{noun}s{space}{limits}" if noun in ("integer", "number", "group", "part", "path", "text") else text
