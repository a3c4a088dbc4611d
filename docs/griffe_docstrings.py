"""Extension of griffe: the section ``Example:`` of our docstrings is what griffe knows as
``Examples:``."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the section, so that its code is highlighted."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of ``obj``."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example::?$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
