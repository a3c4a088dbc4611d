"""Parts that a section of ``params.yaml`` names, built from their references."""

from typing import Any

from bifocal import registry
from runtime.marks import find_mark
from runtime.spec import StrictModel


def build_parts(group: StrictModel, **available: Any) -> dict[str, Any]:
    """Return the values of a section or a group, with a built part for each reference, see ``registry.build``."""
    values = {name: getattr(group, name) for name in type(group).model_fields}
    for name, field in type(group).model_fields.items():
        mark, value = find_mark([*field.metadata, field.annotation]), values[name]
        if mark is not None and isinstance(value, list):
            values[name] = [registry.build(mark.package, ref, **available) for ref in value]
        elif mark is not None and value is not None:
            values[name] = registry.build(mark.package, value, **available)
    return values
