"""The loss of a whole batch in micro-batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal.batch import ImageCaptionPairs
from bifocal.features import RegionBatch
from bifocal.losses import InfoNCELoss, SigmoidLoss
from bifocal.models import TwoBranchModel
from bifocal.text import TextBatch
from bifocal.training.distributed import World
from bifocal.training.gradients import Precision, backward

NewModel = Callable[..., TwoBranchModel]
ROWS = torch.tensor([4, 5, 71, 30, 8, 1, 9, 22, 63, 17, 40])
STILL: dict[str, Any] = {"text_encoder": {"name": "SRUEncoder", "layers": 1, "dropout": 0.0}}
NORMED: dict[str, Any] = {"image_encoder": {"name": "ProjectionEncoder", "hidden": 8, "dropout": 0.5}}


def gradients(
    model: nn.Module,
    loss: nn.Module,
    pairs: ImageCaptionPairs,
    micro_batch_size: int | None,
    precision: Precision = "float32",
) -> tuple[float, dict[str, Tensor]]:
    torch.manual_seed(2)
    value = backward(
        model, loss, pairs.batch(ROWS), precision=precision, micro_batch_size=micro_batch_size, seed=0, world=World()
    )
    named = [*model.named_parameters(), *loss.named_parameters()]
    return value.item(), {name: parameter.grad for name, parameter in named if parameter.grad is not None}


@pytest.mark.parametrize("micro_batch_size", [1, 2, 4, 100])
def test_micro_batches_see_the_negatives_of_the_whole_batch(
    pairs: ImageCaptionPairs, new_model: NewModel, micro_batch_size: int
) -> None:
    value, expected = gradients(new_model(**STILL).train(), SigmoidLoss(), pairs, None)
    again, found = gradients(new_model(**STILL).train(), SigmoidLoss(), pairs, micro_batch_size)
    assert again == pytest.approx(value)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


def kept_gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_second_pass_draws_the_same_numbers_and_counts_once(
    pairs: ImageCaptionPairs, new_model: NewModel, precision: Precision
) -> None:
    """Against one pass over the same micro-batches that keeps everything."""
    model, reference, loss = new_model(**NORMED).train(), new_model(**NORMED).train(), InfoNCELoss()
    value, found = gradients(model, loss, pairs, 4, precision)
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
    assert torch.equal(after, torch.rand(()))  # as many numbers were drawn
    assert found.keys() == kept_gradients(reference).keys()
    # One by one they are rounded differently: the one pass sums over its micro-batches in bfloat16.
    ours, theirs = (torch.cat([grad[name].flatten() for name in found]) for grad in (found, kept_gradients(reference)))
    assert (ours - theirs).norm() < (0.02 if cast else 1e-5) * theirs.norm()
    for (name, kept), counted in zip(model.named_buffers(), reference.buffers(), strict=True):
        if "num_batches" not in name:
            torch.testing.assert_close(kept, counted, msg=name)


def test_an_encoding_may_have_several_parts(pairs: ImageCaptionPairs, new_model: NewModel) -> None:
    class Words(nn.Module):
        """Scores the regions and words one by one: a tuple for each side, with a mask that has no gradient."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden = new_model(**STILL)

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
    _, found = gradients(Words(), InfoNCELoss(), pairs, 3)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


def test_a_frozen_half_gets_no_gradient(pairs: ImageCaptionPairs, new_model: NewModel) -> None:
    model = new_model(**STILL)
    model.text_encoder.requires_grad_(False)
    model.word_embedding.requires_grad_(False)
    _, found = gradients(model, InfoNCELoss(), pairs, 3)
    assert found.keys() == {name for name, _ in model.named_parameters() if name.startswith("image")}
