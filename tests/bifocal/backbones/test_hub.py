"""Downloads from a hub on loopback: checksums, resumption, and no network once the files are
there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bifocal.backbones.hub import download, is_reachable
from tests.bifocal.hub_server import Hub, serve_hub

FILES = ["config.json", "visual/*"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    repository = tmp_path / "hub" / "owner" / "clip"
    (repository / "visual").mkdir(parents=True)
    (repository / "config.json").write_text("{}")
    (repository / "visual" / "model.onnx").write_bytes(bytes(range(256)) * 4000)
    (repository / "visual" / "model.armnn").write_bytes(b"other")
    (repository / "README.md").write_text("card")
    with serve_hub(tmp_path / "hub") as served:
        yield served


def test_a_download_is_checked_and_needs_no_network_again(hub: Hub) -> None:
    folder = download("owner/clip", FILES, ["*.armnn"])
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == [
        "config.json",
        "visual/model.onnx",
    ]
    assert (folder / "visual" / "model.onnx").read_bytes() == bytes(range(256)) * 4000
    count = len(hub.requests)
    assert download("owner/clip", FILES, ["*.armnn"]) == folder
    assert len(hub.requests) == count


def test_an_interrupted_download_goes_on(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut.add("model.onnx")
    folder = download("owner/clip", FILES, ["*.armnn"])
    assert (folder / "visual" / "model.onnx").read_bytes() == bytes(range(256)) * 4000
    first, second = hub.got("model.onnx")
    assert first is None
    assert second == "bytes=512000-"


def test_a_wrong_byte_is_refused_and_downloaded_again(hub: Hub) -> None:
    hub.wrong.add("model.onnx")
    with pytest.raises(
        FileNotFoundError,
        match=r"visual/model.onnx of owner/clip has another checksum than the hub's",
    ):
        download("owner/clip", FILES)
    hub.wrong.clear()
    assert (download("owner/clip", FILES) / "visual" / "model.onnx").read_bytes() == bytes(
        range(256)
    ) * 4000


def test_a_missing_repository_and_a_hub_without_a_network(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"owner/other cannot be downloaded \(RepositoryNotFoundError: 404.*\): http",
    ):
        download("owner/other", FILES)
    assert is_reachable(hub.address)  # on the port of its address
    assert not is_reachable("http://127.0.0.1:1")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    message = (
        r"owner/clip cannot be downloaded \(127.0.0.1:1 cannot be reached\): "
        r"http://127.0.0.1:1/owner/clip/tree/main"
    )
    with pytest.raises(FileNotFoundError, match=message):
        download("owner/clip", FILES)


@pytest.mark.parametrize("place", ["HF_HUB_CACHE", "HF_TOKEN_PATH"])
def test_a_home_that_cannot_be_written_is_named_with_its_variable(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(f"huggingface_hub.constants.{place}", str(tmp_path / "file" / "below"))
    with pytest.raises(FileNotFoundError, match=r"file/below.*; HF_HOME names the folder"):
        download("owner/clip", FILES)
