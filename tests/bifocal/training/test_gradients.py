"""Gradients of a whole batch in micro-batches, and with recomputed activations."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.image_encoders import BEANEncoder
from bifocal.losses import InfoNCELoss, SigmoidLoss
from bifocal.models import TwoBranchModel
from bifocal.models.batch import ImageCaptionPairs
from bifocal.scores import Scores
from bifocal.text import TextBatch
from bifocal.training.distributed import World
from bifocal.training.gradients import backward, checked_loss, recompute_activations
from bifocal.training.precision import Precision, autocast_for, embedding_cast, multiplies_bfloat16

NewModel = Callable[..., TwoBranchModel]
ROWS = torch.tensor([4, 5, 71, 30, 8, 1, 9, 22, 63, 17, 40])
WITHOUT_DROPOUT: dict[str, Any] = {
    "text_encoder": {"name": "SRUEncoder", "layers": 1, "dropout": 0.0}
}
WITH_BATCH_NORM: dict[str, Any] = {
    "image_encoder": {"name": "ProjectionEncoder", "hidden": 8, "dropout": 0.5}
}


def gradients(
    model: nn.Module,
    loss: nn.Module,
    pairs: ImageCaptionPairs,
    micro_batch_size: int | None,
    precision: Precision = "float32",
) -> tuple[float, dict[str, Tensor]]:
    torch.manual_seed(2)
    value = backward(
        model,
        loss,
        pairs.batch(ROWS),
        precision=precision,
        micro_batch_size=micro_batch_size,
        seed=0,
        world=World(),
    )
    named = [*model.named_parameters(), *loss.named_parameters()]
    return value.item(), {
        name: parameter.grad for name, parameter in named if parameter.grad is not None
    }


@pytest.mark.parametrize("micro_batch_size", [1, 2, 4, 100])
def test_micro_batches_use_the_negatives_of_the_whole_batch(
    pairs: ImageCaptionPairs, new_model: NewModel, micro_batch_size: int
) -> None:
    value, expected = gradients(new_model(**WITHOUT_DROPOUT).train(), SigmoidLoss(), pairs, None)
    again, actual = gradients(
        new_model(**WITHOUT_DROPOUT).train(), SigmoidLoss(), pairs, micro_batch_size
    )
    assert again == pytest.approx(value)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=name)


def current_gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_second_pass_uses_the_same_random_numbers_and_updates_statistics_once(
    pairs: ImageCaptionPairs,
    new_model: NewModel,
    precision: Precision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compare with a single pass over the same micro-batches that keeps all activations."""
    monkeypatch.setattr(
        "bifocal.training.precision.multiplies_bfloat16", lambda device: True
    )  # emulated or not
    model, reference, loss = (
        new_model(**WITH_BATCH_NORM).train(),
        new_model(**WITH_BATCH_NORM).train(),
        InfoNCELoss(),
    )
    value, actual = gradients(model, loss, pairs, 4, precision)
    after = torch.rand(())
    torch.manual_seed(2)
    batch, cast = pairs.batch(ROWS), precision == "bfloat16"
    with torch.autocast("cpu", torch.bfloat16, enabled=cast):
        images = [
            reference.embed_images(RegionBatch(*parts))
            for parts in zip(*(part.tensor_split(3) for part in batch.regions), strict=True)
        ]
        captions = [
            reference.embed_captions(TextBatch(*parts))
            for parts in zip(*(part.tensor_split(3) for part in batch.text), strict=True)
        ]
        scores = reference.score(torch.cat(images), torch.cat(captions))
    expected = loss(scores.float(), batch.matches)
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-4)
    assert torch.equal(after, torch.rand(()))  # equally many random numbers are drawn
    assert actual.keys() == current_gradients(reference).keys()
    # One by one they are rounded differently: the one pass sums over its micro-batches in bfloat16.
    combined, reference_gradients = (
        torch.cat([grad[name].flatten() for name in actual])
        for grad in (actual, current_gradients(reference))
    )
    assert (combined - reference_gradients).norm() < (
        0.02 if cast else 1e-5
    ) * reference_gradients.norm()
    for (name, updated), counted in zip(model.named_buffers(), reference.buffers(), strict=True):
        if "num_batches" not in name:
            torch.testing.assert_close(updated, counted, msg=name)


def test_a_cpu_without_bfloat16_trains_in_float32(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for supported in (False, True):
        multiplies_bfloat16.cache_clear()
        monkeypatch.setattr(
            torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda found=supported: found
        )
        caplog.clear()
        for precision in get_args(Precision):
            with autocast_for("cpu", precision)():
                assert torch.is_autocast_enabled("cpu") == (supported and precision == "bfloat16")
        assert ("training in float32" in caplog.text) == (not supported)
    multiplies_bfloat16.cache_clear()


def test_only_layers_of_a_backbone_embed_in_bfloat16(
    new_model: NewModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.training.precision.multiplies_bfloat16", lambda device: True)
    layers = {"name": "LastLayersEncoder", "backbone": "resnet10t", "layer": "layer3"}
    for changes, expected in (({}, False), ({"image_encoder": layers}, True)):
        for precision in get_args(Precision):
            with embedding_cast(new_model(**changes), precision):
                assert torch.is_autocast_enabled("cpu") == (expected and precision == "bfloat16")


def test_encodings_may_be_tuples(pairs: ImageCaptionPairs, new_model: NewModel) -> None:
    class Words(nn.Module):
        """Encodes images as a tuple of features and a mask without gradient."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden = new_model(**WITHOUT_DROPOUT)

        def embed_images(self, regions: RegionBatch) -> tuple[Tensor, Tensor]:
            return self.hidden.image_encoder.convolution(regions.features.float()), regions.mask

        def embed_captions(self, text: TextBatch) -> Tensor:
            return self.hidden.embed_captions(text)

        def score(self, images: tuple[Tensor, Tensor], captions: Tensor) -> Any:
            features, mask = images
            return self.hidden.score((features * mask.unsqueeze(2)).sum(dim=1), captions)

        def forward(self, batch: Any) -> Any:
            return self.score(self.embed_images(batch.regions), self.embed_captions(batch.text))

    _, expected = gradients(Words(), InfoNCELoss(), pairs, None)
    _, actual = gradients(Words(), InfoNCELoss(), pairs, 3)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=name)


def test_frozen_encoder_gets_no_gradient(pairs: ImageCaptionPairs, new_model: NewModel) -> None:
    model = new_model(**WITHOUT_DROPOUT)
    model.text_encoder.requires_grad_(False)
    model.word_embedding.requires_grad_(False)
    _, actual = gradients(model, InfoNCELoss(), pairs, 3)
    assert actual.keys() == {
        name for name, _ in model.named_parameters() if name.startswith("image")
    }


def backbone_gradients(recompute: bool) -> tuple[int, dict[str, Tensor]]:
    """Return the number of forward passes through one block of the backbone, and the gradients."""
    torch.manual_seed(0)
    narrow = {"channels": [8, 8, 8, 8], "stem_width": 8}
    encoder = BEANEncoder(
        dim=4, maps=6, backbone="resnet10t", crop=None, eval_resize="as_is", model_arguments=narrow
    )
    encoder.train()
    if recompute:
        recompute_activations(encoder)
    assert encoder.backbone is not None
    calls: list[int] = []
    # A pre-hook, because recomputation stops inside the block after the last saved activation.
    encoder.backbone.network.layer2[0].register_forward_pre_hook(lambda *_: calls.append(1))
    pixels, mask = 255 * torch.rand(2, 3, 64, 64), torch.ones(2, 64, 64, dtype=torch.bool)
    (encoder(pixels, mask) * torch.randn(2, 4)).sum().backward()
    return len(calls), {
        name: p.grad for name, p in encoder.named_parameters() if p.grad is not None
    }


def test_recompute_activations_gives_the_same_gradients_with_two_forward_passes() -> None:
    (once, expected), (twice, actual) = (
        backbone_gradients(recompute=False),
        backbone_gradients(recompute=True),
    )
    assert (once, twice) == (1, 2)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=name)


def test_recompute_activations_rejects_a_model_without_a_backbone() -> None:
    with pytest.raises(ValueError, match="no backbone that trains; turn it off"):
        recompute_activations(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("value", "line", "reason"),
    [
        ("scores.cross", 5, r"Own returns \(3, 4\) for .*: expected one number"),
        ("scores.cross.sum().item()", 5, "Own returns float for"),
        ("scores.cross.sum()[None]", 5, r"Own returns \(1,\) for"),
        ("(scores.cross - matches.float().T).sum()", 6, "RuntimeError: The size of tensor a"),
        ("scores.missing", 6, "AttributeError: 'Scores' object has no attribute 'missing'"),
        ("{}['key']", 6, "KeyError: 'key'"),
        ("torch.stack([])", 6, "RuntimeError: stack expects"),
    ],
)
def test_a_loss_of_ones_own_that_fails_has_its_file_line_and_shapes(
    tmp_path: Path, value: str, line: int, reason: str
) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import torch\n\n\nclass Own(torch.nn.Module):\n    def forward(self, scores, matches):\n"
        f"        return {value}\n"
    )
    spec = importlib.util.spec_from_file_location("own", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(ValueError, match=rf"own\.py, line {line}: {reason}") as failed:
        checked_loss(module.Own(), Scores(torch.rand(3, 4)), torch.eye(3, 4, dtype=torch.bool))
    assert "scores (3, 4), matches (3, 4)" in str(failed.value)
