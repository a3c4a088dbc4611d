"""What is known of the items of a collection, beside their vectors."""

from pathlib import Path
from typing import Any, Protocol


class Items(Protocol):
    """Captions, values and image files of items, by their ids."""

    def captions(self, item_id: str) -> list[str]:
        """Return the sentences of an item."""

    def metadata(self, item_id: str) -> dict[str, Any]:
        """Return the values of an item."""

    def file(self, item_id: str) -> Path | None:
        """Return the file of an item's image; None if this machine does not have it."""
