"""The user's cache keeps computed files, the latest used ones, for the code that computed them."""

import os
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


def test_a_cache_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "bifocal").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link"):
        cache_folder("encoders")


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
