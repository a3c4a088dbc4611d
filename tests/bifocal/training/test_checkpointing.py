"""Gradient checkpointing of a backbone that trains."""

import pytest
import torch
from torch import Tensor, nn

from bifocal.image_encoders import BEANEncoder
from bifocal.training import recompute_activations


def gradients(recompute: bool) -> tuple[int, dict[str, Tensor]]:
    """Return the number of forward passes of one block of the backbone, and the gradients."""
    torch.manual_seed(0)
    narrow = {"channels": [8, 8, 8, 8], "stem_width": 8}
    encoder = BEANEncoder(dim=4, maps=6, backbone="resnet10t", crop=None, eval_resize="as_is", model_arguments=narrow)
    encoder.train()
    if recompute:
        recompute_activations(encoder)
    assert encoder.backbone is not None
    calls: list[int] = []
    # A pre-hook, because recomputation stops inside the block after the last saved activation.
    encoder.backbone.network.layer2[0].register_forward_pre_hook(lambda *_: calls.append(1))
    pixels, mask = 255 * torch.rand(2, 3, 64, 64), torch.ones(2, 64, 64, dtype=torch.bool)
    (encoder(pixels, mask) * torch.randn(2, 4)).sum().backward()
    return len(calls), {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


def test_recompute_activations_gives_the_same_gradients_with_two_forward_passes() -> None:
    (once, expected), (twice, actual) = gradients(recompute=False), gradients(recompute=True)
    assert (once, twice) == (1, 2)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=name)


def test_recompute_activations_rejects_a_model_without_a_backbone() -> None:
    with pytest.raises(ValueError, match="no backbone that trains; turn it off"):
        recompute_activations(nn.Linear(2, 2))
