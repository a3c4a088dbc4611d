"""Networks are saved and loaded without loss, and incomplete directories are rejected."""

from pathlib import Path

import pytest
import torch

from bifocal import serialization
from bifocal.serialization import load_config, load_state, save_network


def test_save_network_restores_configuration_and_weights(tmp_path: Path) -> None:
    state = {
        "weight": torch.randn(3, 4).T,
        "count": torch.tensor(2**40),
        "half": torch.ones(2, dtype=torch.float16),
    }
    save_network(
        tmp_path / "new" / "network", {"name": "Linear", "arguments": {"sizes": [1, 2]}}, state
    )
    assert load_config(tmp_path / "new" / "network") == {
        "name": "Linear",
        "arguments": {"sizes": [1, 2]},
    }
    loaded = load_state(tmp_path / "new" / "network")
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_save_network_gives_the_same_bytes_for_any_order_of_keys(tmp_path: Path) -> None:
    state = {"a": torch.arange(3.0), "b": torch.arange(4.0)}
    save_network(tmp_path / "first", {"x": 1, "y": 2}, state)
    save_network(tmp_path / "second", {"y": 2, "x": 1}, dict(reversed(state.items())))
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("first", "second")
    ]
    assert files[0] == files[1]
    assert files[0].keys() == {"config.json", "model.safetensors"}


def test_network_without_weights_has_no_weights_file(tmp_path: Path) -> None:
    save_network(tmp_path, {"name": "A"}, {"weight": torch.ones(1)})
    save_network(tmp_path, {"name": "B"}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    with pytest.raises(
        FileNotFoundError, match=r"no weights of a sorter: model\.safetensors is missing"
    ):
        load_state(tmp_path, "sorter")


def test_interrupted_save_leaves_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        path.write_bytes(b"part")
        raise OSError("No space left on device")

    save_network(tmp_path, {"name": "A"}, {"weight": torch.ones(1)})
    monkeypatch.setattr(serialization, "save_file", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_network(tmp_path, {"name": "B"}, {"weight": torch.zeros(1)})
    with pytest.raises(FileNotFoundError, match=r"holds no sorter: config\.json is missing"):
        load_config(tmp_path, "sorter")
