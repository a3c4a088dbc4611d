"""A static copy of the search page."""

import contextlib
import json
from collections.abc import Collection as Container
from pathlib import Path

from bifocal.search.trained_model import ONNX
from bifocal.serving.service.models import RunSource
from bifocal.serving.site.writer import write_site
from pipelines.app.demo import unpack


class ExportSite:
    """Four items of a run are exported."""

    def prepare(self, folder: Path) -> None:
        """Write a run."""
        unpack(folder / "demo")

    def run(self, folder: Path, number: int) -> None:
        """Write the static copy."""
        served = RunSource(folder / "demo").load()
        kept = sorted(served.index)[:4]
        write_site(
            served,
            folder / "demo" / ONNX,
            folder / "site",
            frozenset(served.index) - set(kept),
            False,
        )

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check that there is a whole copy or none, and that the next command writes it."""
        if not (folder / "site").exists():
            assert not acknowledged
            self.run(folder, 0)
        data = folder / "site" / json.loads((folder / "site" / "site.json").read_text())["data"]
        assert len(list((data / "thumbnails").iterdir())) == 4
        with contextlib.suppress(FileExistsError):
            self.run(folder, 0)
        assert sorted(path.name for path in folder.iterdir()) == ["demo", "site"]
