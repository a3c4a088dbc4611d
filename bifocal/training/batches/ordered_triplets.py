"""Batches of image triplets, ordered by text similarity."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bifocal.losses.semantic_triplet import SemanticTripletLoss
from bifocal.models.embedding import dual_encoder
from bifocal.training.batches.base import Batches, PreparedBatches, Sampler, check_positive, epoch_generator
from bifocal.training.inputs import TrainingInputs
from bifocal.training.pairs.semantic import SemanticPairs
from bifocal.training.validators.base import Validation
from bifocal.training.validators.semantic import Semantic


@dataclass(frozen=True)
class OrderedTriplets(Batches):
    """Random triplets of images; the one whose text is more similar to the query's is the relevant one.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 5.1, the first of two approaches:
    s(q, d+) > s(q, d-). The paper found that it does not improve the visual representation; ``MinedTriplets`` is the
    second. The loss is ``SemanticTripletLoss``; the validator ``Semantic`` chooses the epoch.

    Args:
        batch_size: triplets per batch.
        steps_per_epoch: optimizer steps per epoch.
    """

    validator: ClassVar[type[Validation]] = Semantic
    loss: ClassVar[type[nn.Module] | None] = SemanticTripletLoss
    single_vector: ClassVar[bool] = True
    batch_size: int = 64
    steps_per_epoch: int = 64

    def __post_init__(self) -> None:
        check_positive(batch_size=self.batch_size, steps_per_epoch=self.steps_per_epoch)

    def prepare(self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int) -> PreparedBatches:
        dual_encoder(model)
        if not isinstance(loss, SemanticTripletLoss):
            raise TypeError(f"OrderedTriplets needs SemanticTripletLoss, not {type(loss).__name__}")
        pairs = SemanticPairs(inputs.captions("train"))
        return PreparedBatches(pairs, self.sampler(pairs, seed))

    def sampler(self, pairs: SemanticPairs, seed: int) -> Sampler:
        """Return the sampler of a collection of images with their texts."""

        def sample(epoch: int) -> list[Tensor]:
            generator = epoch_generator(seed, epoch)
            count, triplets = self.steps_per_epoch * self.batch_size, torch.empty(0, 3, dtype=torch.int64)
            while len(triplets) < count:
                query, first, second = torch.randint(len(pairs), (3, count), generator=generator)
                gap = pairs.similarity(query, first) - pairs.similarity(query, second)
                ordered = (gap != 0) & (query != first) & (query != second)
                if not ordered.any():
                    raise ValueError(
                        "all drawn images are equally similar to their query: their captions have no common words"
                    )
                relevant, irrelevant = torch.where(gap > 0, first, second), torch.where(gap > 0, second, first)
                triplets = torch.cat([triplets, torch.stack([query, relevant, irrelevant], dim=1)[ordered]])
            return [rows.T.flatten() for rows in triplets[:count].split(self.batch_size)]

        return sample
