"""Batches of image triplets for semantic retrieval: mined with the current model, or ordered by
their texts."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from bifocal.losses.semantic_triplet import SemanticTripletLoss
from bifocal.models.batch import DualEncoder, dual_encoder
from bifocal.registry import check_range
from bifocal.training.batches.base import Batches, PreparedBatches, Sampler, epoch_generator
from bifocal.training.inputs import TrainingInputs
from bifocal.training.semantic_pairs import SemanticPairs, mine_triplets, relevant_images
from bifocal.training.validators import Semantic, Validation


class TripletBatches(Batches):
    """Batches of triplets of images, for ``SemanticTripletLoss``."""

    validator: ClassVar[type[Validation]] = Semantic
    loss: ClassVar[type[nn.Module] | None] = SemanticTripletLoss
    single_vector: ClassVar[bool] = True

    def _checked(
        self, inputs: TrainingInputs, model: nn.Module, loss: nn.Module
    ) -> tuple[SemanticPairs, DualEncoder, SemanticTripletLoss]:
        encoder = dual_encoder(model)
        if not isinstance(loss, SemanticTripletLoss):
            name = type(self).__name__
            raise TypeError(f"{name} needs SemanticTripletLoss, not {type(loss).__name__}")
        return SemanticPairs(inputs.captions("train")), encoder, loss


@dataclass(frozen=True)
class MinedTriplets(TripletBatches):
    """Triplets of a query image, a relevant image and an irrelevant image, mined again in every
    epoch.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 5.1 and 6.1. An
    image is relevant to a query if its captions are among the nearest of the query's. At the
    beginning of an epoch the model embeds a pool of images, and the triplets with the largest loss
    of the pool are drawn from. The loss is ``SemanticTripletLoss``, and a triplet is mined by the
    terms that have a weight; the validator ``Semantic`` chooses the epoch.

    Args:
        batch_size: triplets per batch.
        neighbors: images with the nearest captions, which are relevant to an image.
        queries_per_pool: query images per mining pool.
        positives_per_query: relevant images in the pool for each query, at least.
        triplets_per_pair: triplets of the largest loss kept per query and relevant image.
        steps_per_epoch: optimizer steps per epoch; triplets are mined at the beginning of each
            epoch.
    """

    batch_size: int = 64
    neighbors: int = 32
    queries_per_pool: int = 500
    positives_per_query: int = 9
    triplets_per_pair: int = 100
    steps_per_epoch: int = 64

    def __post_init__(self) -> None:
        check_range(
            "[1, inf)",
            batch_size=self.batch_size,
            neighbors=self.neighbors,
            queries_per_pool=self.queries_per_pool,
            positives_per_query=self.positives_per_query,
            triplets_per_pair=self.triplets_per_pair,
            steps_per_epoch=self.steps_per_epoch,
        )
        if self.positives_per_query > self.neighbors:
            raise ValueError(
                f"positives_per_query is {self.positives_per_query}, but only {self.neighbors} "
                "neighbors are relevant: lower it, or raise neighbors"
            )

    def prepare(
        self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int
    ) -> PreparedBatches:
        pairs, encoder, triplet_loss = self._checked(inputs, model, loss)
        return PreparedBatches(pairs, self.sampler(pairs, encoder, triplet_loss, seed))

    def sampler(
        self, pairs: SemanticPairs, model: DualEncoder, loss: SemanticTripletLoss, seed: int
    ) -> Sampler:
        """Return the sampler of images with their texts; the model embeds the pool when an epoch
        begins."""
        relevant = relevant_images(pairs, self.neighbors)

        def sample(epoch: int) -> list[Tensor]:
            generator = epoch_generator(seed, epoch)
            pool, queries = self._pool(relevant, generator)
            relevance = (relevant[pool[:queries]].unsqueeze(2) == pool).any(dim=1)
            images = pairs.embed_images(model, pool)
            texts = pairs.embed_texts(model, pool) if loss.uses_texts else images
            parts = loss.weighted(
                images[:queries] @ images.T, images[:queries] @ texts.T, texts[:queries] @ images.T
            )
            triplets = mine_triplets(parts, relevance, loss.margin, self.triplets_per_pair)
            if not len(triplets):
                raise ValueError(
                    f"epoch {epoch + 1}: no triplet of the pool has a loss; raise the margin, "
                    "or train fewer epochs"
                )
            drawn = torch.randint(
                len(triplets), (self.steps_per_epoch, self.batch_size), generator=generator
            )
            return [pool[triplets[rows]].T.flatten() for rows in drawn]

        return sample

    def _pool(self, relevant: Tensor, generator: Generator) -> tuple[Tensor, int]:
        """Draw the rows of the pool's distinct images, queries first, and return them with the
        number of queries."""
        queries = torch.randperm(len(relevant), generator=generator)[: self.queries_per_pool]
        order = torch.rand(len(queries), relevant.shape[1], generator=generator).argsort(dim=1)
        positives = relevant[queries].gather(1, order[:, : self.positives_per_query]).unique()
        return torch.cat([queries, positives[~torch.isin(positives, queries)]]), len(queries)


@dataclass(frozen=True)
class OrderedTriplets(TripletBatches):
    """Random triplets of images; the one whose text is more similar to the query's is the relevant
    one.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 5.1, the first of
    two approaches: s(q, d+) > s(q, d-). The paper found that it does not improve the visual
    representation; ``MinedTriplets`` is the second. The loss is ``SemanticTripletLoss``; the
    validator ``Semantic`` chooses the epoch.

    Args:
        batch_size: triplets per batch.
        steps_per_epoch: optimizer steps per epoch.
    """

    batch_size: int = 64
    steps_per_epoch: int = 64

    def __post_init__(self) -> None:
        check_range("[1, inf)", batch_size=self.batch_size, steps_per_epoch=self.steps_per_epoch)

    def prepare(
        self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int
    ) -> PreparedBatches:
        pairs, _, _ = self._checked(inputs, model, loss)
        return PreparedBatches(pairs, self.sampler(pairs, seed))

    def sampler(self, pairs: SemanticPairs, seed: int) -> Sampler:
        """Return the sampler of a collection of images with their texts."""

        def sample(epoch: int) -> list[Tensor]:
            generator = epoch_generator(seed, epoch)
            count, triplets = (
                self.steps_per_epoch * self.batch_size,
                torch.empty(0, 3, dtype=torch.int64),
            )
            while len(triplets) < count:
                query, first, second = torch.randint(len(pairs), (3, count), generator=generator)
                gap = pairs.similarity(query, first) - pairs.similarity(query, second)
                ordered = (gap != 0) & (query != first) & (query != second)
                if not ordered.any():
                    raise ValueError(
                        "all drawn images are equally similar to their query: their captions "
                        "have no common words"
                    )
                relevant, irrelevant = (
                    torch.where(gap > 0, first, second),
                    torch.where(gap > 0, second, first),
                )
                triplets = torch.cat(
                    [triplets, torch.stack([query, relevant, irrelevant], dim=1)[ordered]]
                )
            return [rows.T.flatten() for rows in triplets[:count].split(self.batch_size)]

        return sample
