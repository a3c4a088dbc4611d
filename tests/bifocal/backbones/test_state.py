"""Weights from a file or from timm; errors name the weights that do not fit."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bifocal.backbones.state import load_library_weights, load_weights_file
from bifocal.backbones.timm.backbone import BackboneConfig, TimmBackbone

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def backbone() -> TimmBackbone:
    return TimmBackbone(BackboneConfig("resnet10t", 32, model_arguments=SMALL))


def test_weights_file_is_loaded_with_or_without_a_classifier(tmp_path: Path) -> None:
    source, path = backbone(), tmp_path / "weights.safetensors"
    state = source.network.state_dict()
    for extra in ({}, {"fc.weight": torch.ones(3, 32), "fc.bias": torch.ones(3)}):
        save_file(state | extra, path)
        target = backbone()
        assert load_weights_file(target, path) == hashlib.sha256(path.read_bytes()).hexdigest()
        for name, tensor in target.network.state_dict().items():
            torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)


def test_weights_that_do_not_fit_are_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    target, path = backbone(), tmp_path / "weights.safetensors"
    before = {name: tensor.clone() for name, tensor in target.network.state_dict().items()}
    state = dict(target.network.state_dict())
    del state["layer1.0.conv1.weight"]
    state["layer9.weight"] = torch.ones(1)
    state["layer2.0.bn1.bias"] = torch.ones(5)
    save_file(state, path)
    with pytest.raises(ValueError, match="does not fit ResNet") as error:
        load_weights_file(target, path)
    for part in (
        "1 missing (layer1.0.conv1.weight)",
        "1 not of this network (layer9.weight)",
        "1 of another shape (layer2.0.bn1.bias (5,) for (16,))",
    ):
        assert part in str(error.value)
    for name, tensor in target.network.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (Path(self.path),)


def test_pickle_is_refused_without_opening_it(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    for name, write in (
        ("a.pth", pickle.dump),
        ("b.bin", lambda trap, file: torch.save({"x": trap}, file)),
    ):
        with (tmp_path / name).open("wb") as file:
            write(Trap(executed), file)
        with pytest.raises(
            ValueError, match=rf"{name} is not a safetensors file.*weights_only=True"
        ):
            load_weights_file(backbone(), tmp_path / name)
        assert not executed.exists()


def test_missing_weights_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors: no such file"):
        load_weights_file(backbone(), tmp_path / "nothing.safetensors")


def test_failed_download_says_which_file_to_download_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_network(self: TimmBackbone) -> dict[str, torch.Tensor]:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(TimmBackbone, "pretrained_state", no_network)
    with pytest.raises(FileNotFoundError) as error:
        load_library_weights(TimmBackbone(BackboneConfig("resnet10t", 32)))
    for part in (
        "resnet10t cannot be downloaded (ConnectionError: no route to host)",
        "https://huggingface.co/timm/resnet10t.c3_in1k/resolve/main/model.safetensors",
        "load the file with FromFile",
    ):
        assert part in str(error.value)


def test_library_weights_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = backbone(), backbone()
    monkeypatch.setattr(target, "pretrained_state", source.network.state_dict)
    first = load_library_weights(target)
    for name, tensor in target.network.state_dict().items():
        torch.testing.assert_close(tensor, source.network.state_dict()[name], rtol=0, atol=0)
    monkeypatch.setattr(target, "pretrained_state", backbone().network.state_dict)
    assert load_library_weights(target) != first
