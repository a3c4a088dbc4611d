"""Changes of a folder of images, for ``bifocal index --watch``."""

from collections.abc import Iterator
from pathlib import Path

from bifocal.datasets.formats import caption_table, sidecars
from bifocal.datasets.formats.folder import IMAGE_SUFFIXES, is_written
from bifocal.search.collection.sources import ARCHIVES

READ = (*IMAGE_SUFFIXES, *caption_table.SUFFIXES, *sidecars.SUFFIXES, *ARCHIVES)
"""Ends of the names of files that an index reads."""
QUIET_MS, LOOK_MS = 1000, 500
"""Changes that follow each other within ``QUIET_MS`` are one; milliseconds."""


def changes(source: Path, run: Path) -> Iterator[None]:
    """Yield once when the files of a source are watched, and then after each change of them, without end.

    Args:
        source: folder, table or archive; the images of a table are beside it.
        run: folder whose files are no part of the source.
    """
    from watchfiles import watch

    run = run.resolve()

    folder = source if source.is_dir() else source.parent

    def is_read(_: object, path: str) -> bool:
        if not path.lower().endswith(READ) or Path(path).is_relative_to(run):
            return False
        below = Path(path).relative_to(folder).parents[:-1]
        return not any(is_written(folder / parent) for parent in below)

    for number, found in enumerate(
        watch(folder, watch_filter=is_read, debounce=QUIET_MS, rust_timeout=LOOK_MS, yield_on_timeout=True)
    ):
        if found or number == 0:  # without a change: no image came between the first index and the watch
            yield
