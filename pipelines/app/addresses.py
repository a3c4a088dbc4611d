"""A folder of the user that may be on S3."""

from typing import Any

import click


class FolderOrAddress(click.Path):
    """An existing folder or file, as an absolute path, or an address on S3."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path or the address."""
        from bifocal.datasets.remote_files import (
            is_address,
        )  # imports pandas

        return value if is_address(value) else str(super().convert(value, param, ctx))
