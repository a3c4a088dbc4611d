"""Weights from a file, or from timm; what does not fit is named."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bifocal.backbones.state import load_weights
from bifocal.backbones.timm import TimmBackbone
from bifocal.features.extractors import Grid

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def grid() -> TimmBackbone:
    return Grid("resnet10t", size=32, model_arguments=SMALL).backbone


def test_a_file_gives_its_weights_with_or_without_the_classifier(tmp_path: Path) -> None:
    source, path = grid(), tmp_path / "weights.safetensors"
    state = source.network.state_dict()
    for extra in ({}, {"fc.weight": torch.ones(3, 32), "fc.bias": torch.ones(3)}):
        save_file(state | extra, path)
        target = grid()
        assert load_weights(target, path) == hashlib.sha256(path.read_bytes()).hexdigest()
        for name, tensor in target.network.state_dict().items():
            torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)


def test_weights_that_do_not_fit_are_named_and_change_nothing(tmp_path: Path) -> None:
    target, path = grid(), tmp_path / "weights.safetensors"
    before = {name: tensor.clone() for name, tensor in target.network.state_dict().items()}
    state = dict(target.network.state_dict())
    del state["layer1.0.conv1.weight"]
    state["layer9.weight"] = torch.ones(1)
    state["layer2.0.bn1.bias"] = torch.ones(5)
    save_file(state, path)
    with pytest.raises(ValueError, match="does not fit ResNet") as error:
        load_weights(target, path)
    for part in (
        "1 missing (layer1.0.conv1.weight)",
        "1 not of this network (layer9.weight)",
        "1 of another shape (layer2.0.bn1.bias (5,) for (16,))",
    ):
        assert part in str(error.value)
    for name, tensor in target.network.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(self.path),)

    def __init__(self, path: Path) -> None:
        self.path = str(path)


def test_a_pickle_is_refused_and_not_opened(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    for name, write in (("a.pth", pickle.dump), ("b.bin", lambda trap, file: torch.save({"x": trap}, file))):
        with (tmp_path / name).open("wb") as file:
            write(Trap(sprung), file)
        with pytest.raises(ValueError, match=rf"{name} is no safetensors file.*weights_only=True"):
            load_weights(grid(), tmp_path / name)
        assert not sprung.exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors: no such file"):
        load_weights(grid(), tmp_path / "nothing.safetensors")


def test_without_a_network_the_error_says_which_file_to_put_where(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Grid("resnet10t", size=32).backbone

    def no_network(self: TimmBackbone) -> dict[str, torch.Tensor]:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(TimmBackbone, "pretrained", no_network)
    with pytest.raises(FileNotFoundError) as error:
        load_weights(kind, None)
    for part in (
        "resnet10t cannot be downloaded (ConnectionError: no route to host)",
        "https://huggingface.co/timm/resnet10t.c3_in1k/resolve/main/model.safetensors",
        "set extract_features.weights",
    ):
        assert part in str(error.value)


def test_the_librarys_own_weights_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = grid(), grid()
    monkeypatch.setattr(target, "pretrained", source.network.state_dict)
    first = load_weights(target, None)
    for name, tensor in target.network.state_dict().items():
        torch.testing.assert_close(tensor, source.network.state_dict()[name], rtol=0, atol=0)
    monkeypatch.setattr(target, "pretrained", grid().network.state_dict)
    assert load_weights(target, None) != first
