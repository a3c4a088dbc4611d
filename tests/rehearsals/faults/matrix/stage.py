"""Artifacts of a stage, and the file of deletions of a service."""

from collections.abc import Collection as Container
from pathlib import Path
from typing import ClassVar

from bifocal.serving.service.live import Deletions
from runtime import artifacts


class Commit:
    """Two artifacts of a stage are replaced together."""

    fingerprint: ClassVar = {"component": "toy"}

    def prepare(self, folder: Path) -> None:
        """Commit two artifacts, and write the partial folders of two others with checkpoints."""
        for name in ("a", "b"):
            self._write(folder / name, "old")
        artifacts.commit_all(self._partials(folder), self.fingerprint)
        for name in ("a", "b"):
            partial = self._write(folder / name, "new")
            (partial / "checkpoints").mkdir()
            (partial / "checkpoints" / "last").write_text("days of work")

    def _write(self, final: Path, text: str) -> Path:
        partial = artifacts.open_partial(final, self.fingerprint)
        (partial / "file").write_text(text)
        return partial

    def _partials(self, folder: Path) -> dict[Path, Path]:
        return {
            folder / name: artifacts.open_partial(folder / name, self.fingerprint)
            for name in ("a", "b")
        }

    def run(self, folder: Path, number: int) -> None:
        """Commit the partial folders."""
        partials = self._partials(folder)
        for partial in partials.values():
            if not (partial / "file").is_file():
                (partial / "file").write_text("new")
        artifacts.commit_all(partials, self.fingerprint)

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check that both artifacts are of one state, and that an interrupted commit keeps the
        checkpoints."""
        for name in ("a", "b"):
            artifacts.check_files(folder / name)
        found = {(folder / name / "file").read_text() for name in ("a", "b")}
        assert found == {"new"} if acknowledged else found in ({"old"}, {"new"}), found
        if found == {"old"}:
            kept = [
                (folder / f"{name}.partial" / "checkpoints" / "last").is_file()
                for name in ("a", "b")
            ]
            assert all(kept), "the work is lost"
        self.run(folder, 0)
        files = {
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        }
        assert files == {
            f"{name}/{file}" for name in ("a", "b") for file in ("file", "manifest.json")
        }
        assert all((folder / name / "file").read_text() == "new" for name in ("a", "b"))


class DeleteByService:
    """A line of the file of ``bifocal serve --deletions``."""

    def prepare(self, folder: Path) -> None:
        """Write a file with one deletion."""
        folder.mkdir()
        Deletions(folder / "deleted.jsonl").add("previous")

    def run(self, folder: Path, number: int) -> None:
        """Add a deletion."""
        Deletions(folder / "deleted.jsonl").add(f"item {number}")

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Check the items, and that the next deletion changes no other one."""
        found = set(Deletions(folder / "deleted.jsonl"))
        assert (
            {"previous", *(f"item {number}" for number in acknowledged)}
            <= found
            <= {"previous", "item 0", "item 1"}
        )
        self.run(folder, 2)
        assert set(Deletions(folder / "deleted.jsonl")) == found | {"item 2"}
