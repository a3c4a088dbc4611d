"""The user's cache keeps computed files, the latest used ones, for the code that computed them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bifocal.durable import cached
from bifocal.durable.cached import (
    cache_folder,
    cached_folder,
    code_digest,
    is_intact,
    kept,
    state_of,
    write_cached,
)
from bifocal.durable.sources import SourceFiles

ROOT = Path(__file__).parents[3]


def write(content: str, file: Path) -> None:
    """Write an export that counts its calls."""
    with (file.parent / "calls").open("a") as calls:
        calls.write(content)
    file.write_text(content)


def test_the_latest_used_graphs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cached, "KEPT", 2)
    for content in "ababcaab":  # c takes the place of a, and then a of b
        write_cached([content], tmp_path / "graph.onnx", write, content)
        assert (tmp_path / "graph.onnx").read_text() == content
    assert (tmp_path / "calls").read_text() == "abcab"
    assert len(list(cache_folder("graphs").iterdir())) == 3  # with the folder of hashes
    monkeypatch.setattr(cached, "code_digest", lambda modules: "of other code")
    write_cached(["b"], tmp_path / "graph.onnx", write, "b")
    assert (tmp_path / "calls").read_text() == "abcabb"


def test_a_graph_with_a_second_file_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "graph.onnx.data").write_bytes(b"weights")
    for _ in range(2):
        write_cached(["a"], tmp_path / "graph.onnx", write, "a")
    assert (tmp_path / "calls").read_text() == "aa"


def exchange(folder: Path, place: Path) -> None:
    folder.rename(place)
    folder.symlink_to(place)


def give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    os.chown(path, 12345, 12345)


CHANGES: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda folder: (folder / "graph").write_text("poisoned"),
    "a further file": lambda folder: (folder / "more").touch(),
    "a missing file": lambda folder: (folder / "graph").unlink(),
    "a link to a folder": lambda folder: exchange(folder, folder.parents[2] / "moved"),
    "a link in it": lambda folder: exchange(folder / "graph", folder.parents[2] / "moved"),
    "no hashes": lambda folder: (folder.parent / "sums" / folder.name).unlink(),
    "a folder of another user": give_away,
    "a file of another user": lambda folder: give_away(folder / "graph"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_of_the_cache_is_made_again_unless_it_is_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = []

    def write(folder: Path) -> None:
        calls.append(folder)
        (folder / "graph").write_text("good")

    path = kept("encoders", "key", code=[])
    for _ in range(2):
        assert cached_folder(path, write) == path
    assert len(calls) == 1
    assert path.parent.stat().st_mode & 0o777 == path.parents[1].stat().st_mode & 0o777 == 0o700
    change(path)
    assert not is_intact(path)
    cached_folder(path, write)
    assert len(calls) == 2
    assert [file.read_text() for file in path.iterdir()] == ["good"]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file, and the temporary folder of a machine without homes."""
    for name in ("BIFOCAL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


TEMPORARY = f"temporary/bifocal-{os.getuid()}"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "home/.cache/bifocal"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/bifocal"),
        ({"XDG_CACHE_HOME": "xdg", "BIFOCAL_CACHE": "own/cache"}, "own/cache"),
        ({"HOME": "file"}, TEMPORARY),
        ({"XDG_CACHE_HOME": "file/below"}, TEMPORARY),
    ],
)
def test_the_first_folder_that_can_be_written_is_the_cache(
    places: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(places / value))
    folder = cache_folder("encoders")
    assert folder == places / expected / "encoders"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_chosen_folder_that_cannot_be_written_is_an_error(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIFOCAL_CACHE", str(places / "file" / "cache"))
    with pytest.raises(OSError, match=r"file/cache/encoders'\); set BIFOCAL_CACHE"):
        cache_folder("encoders")


@pytest.mark.parametrize("is_link", [True, False])
@pytest.mark.parametrize("place", ["home/.cache/bifocal", TEMPORARY])
def test_a_cache_of_another_user_is_refused(
    places: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_link: bool
) -> None:
    if place == TEMPORARY:
        monkeypatch.setenv("HOME", str(places / "file"))
    folder = places / place
    folder.parent.mkdir(parents=True, exist_ok=True)
    if is_link:
        folder.symlink_to(places)
    else:
        folder.mkdir()
        give_away(folder)
    with pytest.raises(ValueError, match="is a link, or belongs to another user"):
        cache_folder("encoders")


def test_any_user_without_a_home_has_a_cache(tmp_path: Path) -> None:
    """A container of a cluster runs as an unknown user, in a working directory of root."""
    program = (
        "import os; from bifocal.durable.cached import cache_folder\n"
        "os.getuid() or os.setuid(12345)\n"
        "print(cache_folder('s3'))"
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


def test_the_key_holds_the_code_the_version_and_the_state_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights = tmp_path / "weights"
    weights.write_text("one")
    seen = [kept("a", state_of(weights), code=[])]
    before = weights.stat()
    weights.write_text("two")  # the same size and time
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    seen.append(kept("a", state_of(weights), code=[]))
    monkeypatch.setattr(cached, "code_digest", lambda modules: "other")
    seen.append(kept("a", state_of(weights), code=[]))
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    ("file", "text", "is_equal"),
    [
        ("export", "import bifocal.network\n\n# Why.\nSIZE = 3\n", True),
        ("loss", "SCALE = 2\n", True),
        ("network", "LAYERS = 2\n", False),
        ("export", "import bifocal.network\nSIZE = 4\n", False),
    ],
)
def test_other_code_of_an_export_has_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, is_equal: bool
) -> None:
    (tmp_path / "bifocal").mkdir()
    written = {
        "export": "import bifocal.network\nSIZE = 3\n",
        "network": "LAYERS = 1\n",
        "loss": "",
    }
    digests = []
    for files in (written, {file: text}):
        for name, content in files.items():
            (tmp_path / "bifocal" / f"{name}.py").write_text(content)
        # Each process reads the files once.
        monkeypatch.setattr(cached, "_sources", lambda: SourceFiles(tmp_path))
        digests.append(code_digest(["bifocal.export"]))
    assert (digests[0] == digests[1]) == is_equal
