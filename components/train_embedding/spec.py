"""Stage train_embedding: parameters, inputs and outputs."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Plot
from runtime.training import PhaseParams, StepParams

RANK_LOSS = re.compile(r"\b(MeanAveragePrecision|Recall|Spearman)Loss\b|\w:\w")
"""Losses that take a sorter, and classes of the user, which may: compiling imports neither."""


class EmbeddingPhaseParams(PhaseParams):
    """Batches, loss and learning rate of some epochs."""

    batches: Annotated[ClassRef, FromRegistry("bifocal.training.batches")] = Field(
        description="the examples that share a batch"
    )
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="loss of a batch; a loss with a sorter gets the pretrained one"
    )
    augmentations: list[Annotated[ClassRef, FromRegistry("bifocal.training.augmentations")]] = (
        Field(
            default=[],
            description="random changes of each batch: [{name: RegionDrop, probability: 0.2}, "
            "WordDrop]",
        )
    )
    validator: Annotated[ClassRef, FromRegistry("bifocal.training.validators")] | None = Field(
        default=None,
        description="metric on the split val that chooses the epoch; null: the validator of "
        "the batches",
    )


class TrainEmbeddingParams(StepParams):
    """Section ``train_embedding`` of ``params.yaml``."""

    model: Annotated[
        ClassRef,
        FromRegistry(
            "bifocal.models", injected=("input_dim", "text_format", "vocabulary_size", "network")
        ),
    ] = Field(
        description="model with its image encoder, its text encoder and dim, the dimension of "
        "the joint space"
    )
    initialization: (
        Annotated[ClassRef, FromRegistry("bifocal.training.initialization", paths=("path",))] | None
    ) = Field(
        description="weights that the training starts from, and keeps unless it improves on "
        "them; null for random weights"
    )
    phases: list[EmbeddingPhaseParams] = Field(
        description="trainings in order, each from the best weights of the one before; a phase "
        "that does not improve its metric is undone; empty to keep the weights of "
        "the initialization"
    )
    members: int = Field(
        default=1,
        ge=1,
        description="trainings with different seeds whose vectors are concatenated: one model "
        "of higher dimension",
    )
    closed_form: list[
        Annotated[ClassRef, FromRegistry("bifocal.training.initialization", paths=("path",))]
    ] = Field(
        default=[],
        description="initializations of further members that no phase trains, such as [{name: "
        "CCA, power: 1.0}]",
    )
    hubness: Annotated[ClassRef, FromRegistry("bifocal.hubness")] | None = Field(
        default=ClassRef(name="CSLS"),
        description="correction of search results by a bank of training captions and images, "
        "which is stored with the model; null for none",
    )
    decay_biases: bool = Field(
        default=True,
        description="apply the optimizer's weight decay to biases and norms, too; false: only "
        "to matrices",
    )
    ema_decay: float = Field(
        ge=0,
        lt=1,
        description="decay of the exponential moving average of the weights, which is "
        "validated and kept; 0 for none",
    )
    gradient_checkpointing: bool = Field(
        description="recompute the activations of a trained backbone instead of keeping them: "
        "less memory, more time"
    )

    @property
    def unused_inputs(self) -> frozenset[str]:
        losses = str([phase.loss.model_dump() for phase in self.phases])
        return frozenset() if RANK_LOSS.search(losses) else frozenset({"sorter"})

    def conflicts(self) -> Iterator[str]:
        from bifocal.registry import all_arguments
        from bifocal.training.compatibility import model_conflicts, phase_conflicts

        if not self.phases and self.initialization is None:
            yield (
                "phases is empty and initialization is null, so nothing is learned: set one of them"
            )
        if not self.decay_biases and not all_arguments("torch.optim", self.optimizer).get(
            "weight_decay"
        ):
            yield (
                f"decay_biases is false, and {self.optimizer.name} has no weight_decay: leave "
                "it out"
            )
        given = {} if self.initialization is None else {"initialization": self.initialization}
        given |= {f"closed_form.{number}": part for number, part in enumerate(self.closed_form)}
        yield from model_conflicts(self.model, given, self.members + len(self.closed_form))
        for index, phase in enumerate(self.phases):
            for problem in phase_conflicts(self.model, phase.batches, phase.loss):
                yield f"phases.{index}: {problem}"


COMPONENT = Component(
    name="train_embedding",
    summary="Train an image encoder and a text encoder into a joint space; keep the best epoch.",
    image="gpu",
    data_parallel=True,
    params=TrainEmbeddingParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    plots=(
        Plot("embedding/history.csv", x="epoch", y="loss", title="Training loss"),
        Plot(
            "embedding/history.csv", x="epoch", y="monitor", title="Metric that chooses the epoch"
        ),
    ),
)
