"""The user's cache keeps computed files, the latest used ones, for the code that computed them."""

from pathlib import Path

import pytest

from bifocal.durable import cache_folder, cached
from bifocal.durable.cached import write_cached


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
    assert len(list(cache_folder().iterdir())) == 2
    monkeypatch.setattr(cached, "code_digest", lambda: "of other code")
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
