"""Files of the npm package: verified, cached, and an error that says what to do without a
network."""

import base64
import errno
import hashlib
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from bifocal.serving.site import npm

SCRIPT = b"export default 1;"


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package in place of the real one, and no copies of its files."""
    package = tmp_path / "package.tgz"
    with tarfile.open(package, "w:gz") as archive:
        member = tarfile.TarInfo("package/dist/script.mjs")
        member.size = len(SCRIPT)
        archive.addfile(member, BytesIO(SCRIPT))
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    file = {"path": "dist/script.mjs", "sha256": hashlib.sha256(SCRIPT).hexdigest()}
    content: dict[str, Any] = {
        "package": "made",
        "version": "1.0.0",
        "integrity": f"sha512-{digest}",
        "files": {"script.js": file},
    }
    monkeypatch.setattr(npm, "PINNED", content)
    monkeypatch.setattr(npm, "PACKAGED", tmp_path / "vendor")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    return package


def test_a_package_from_elsewhere_is_kept_in_the_cache(pinned: Path) -> None:
    npm.unpack(pinned, npm.cache_folder())
    assert (npm.vendored_files() / "script.js").read_bytes() == SCRIPT


def test_another_package_is_refused(pinned: Path) -> None:
    pinned.write_bytes(pinned.read_bytes() + b" ")
    with pytest.raises(ValueError, match=r"has the sha512 .* expected"):
        npm.unpack(pinned, npm.cache_folder())
    assert not npm.cache_folder().exists()


def test_a_damaged_copy_is_replaced(pinned: Path) -> None:
    folder = npm.unpack(pinned, npm.cache_folder())
    (folder / "script.js").write_bytes(b"export default 2;")
    with pytest.raises(FileNotFoundError, match="not in this installation"):
        npm.vendored_files()
    npm.unpack(pinned, folder)
    assert npm.vendored_files() == folder


def test_a_full_disk_leaves_the_previous_copy(
    pinned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = npm.unpack(pinned, npm.cache_folder())
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fail)
        with pytest.raises(OSError, match="No space left"):
            npm.unpack(pinned, folder)
    assert list(folder.parent.iterdir()) == [folder]
    assert npm.vendored_files() == folder


def test_files_of_a_wheel_need_no_cache(pinned: Path) -> None:
    npm.unpack(pinned, npm.PACKAGED)
    assert npm.vendored_files() == npm.PACKAGED


def test_without_npm_the_error_says_what_to_do(pinned: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"install Node.js with npm .* 'npm pack "):
        npm.vendored_files()
