"""Folder of the local copies: it needs no writable working directory and no home."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runtime.s3.uri import StorageError, cache_folder, cache_path

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BIFOCAL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_copies_are_in_the_temporary_folder_without_variables(tmp_path: Path) -> None:
    assert (
        cache_path("s3://bucket/words/w2v.bin")
        == tmp_path / f"bifocal-{os.getuid()}" / "bucket/words/w2v.bin"
    )
    assert cache_folder().stat().st_mode & 0o777 == 0o700


def test_variables_name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "bifocal"
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "own" / "cache"))
    assert cache_folder() == tmp_path / "own" / "cache"


def test_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StorageError, match=r"file/cache'\); set BIFOCAL_CACHE"):
        cache_folder()


@pytest.mark.parametrize("kind", ["link", "owner"])
def test_temporary_folder_of_another_user_is_an_error(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"bifocal-{os.getuid()}"
    if kind == "link":
        folder.symlink_to(tmp_path)
    elif os.getuid():
        pytest.skip("only root can give a folder to another user")
    else:
        folder.mkdir()
        os.chown(folder, 12345, 12345)
    with pytest.raises(StorageError, match="is a link, or belongs to another user"):
        cache_folder()


def test_any_user_without_a_home_can_cache() -> None:
    """A container of a cluster runs as an unknown user, in a working directory of root."""
    program = (
        "import os; from runtime.s3.uri import cache_path\n"
        "os.getuid() or os.setuid(12345)\n"
        "print(cache_path('s3://bucket/key'))"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        environment = {"PATH": os.environ["PATH"], "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(folder)
