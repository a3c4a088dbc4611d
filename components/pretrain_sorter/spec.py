"""Stage pretrain_sorter: parameters, inputs and outputs."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot, StrictModel


class SorterTrainingParams(StrictModel):
    """Training of a sorter on synthetic scores."""

    batch_size: int = Field(ge=1, description="vectors per step")
    learning_rate: float = Field(gt=0, description="base learning rate of Adam")
    schedule: Annotated[ClassRef, FromRegistry("bifocal.training.schedules")] = Field(
        description="learning-rate schedule, see bifocal/training/schedules.py"
    )
    vectors_per_epoch: int = Field(ge=1, description="synthetic vectors drawn for each epoch")
    epochs: int = Field(ge=1, description="maximum number of epochs")
    patience: int = Field(
        ge=1, description="stop if the held-out L1 error did not fall in so many epochs"
    )
    tolerance: float = Field(ge=0, lt=1, description="fraction by which the error must fall")
    depths: list[Annotated[int, Field(ge=1)]] = Field(
        default=[],
        description="numbers of blocks of further convolutional sorters that train, for the "
        "depth curve",
    )


class PretrainSorterParams(Params):
    """Section ``pretrain_sorter`` of params.yaml."""

    sorter: Annotated[ClassRef, FromRegistry("bifocal.sorters", injected=("length",))] = Field(
        description="see bifocal/sorters"
    )
    length: int = Field(
        ge=2, description="scores per vector; the maximum for a sorter that accepts several lengths"
    )
    training: SorterTrainingParams | None = Field(
        description="training of a sorter with weights; null for a sorter without weights, "
        "such as ExactRankSorter"
    )

    def conflicts(self) -> Iterator[str]:
        from bifocal.registry import build

        name, sorter = self.sorter.name, build("bifocal.sorters", self.sorter, length=self.length)
        trainable = any(True for _ in sorter.parameters())
        if self.training is not None and not trainable:
            yield f"{name} has no weights to train: set training to null"
        if self.training is None and trainable:
            yield f"training is null, but {name} has weights: set training"


COMPONENT = Component(
    name="pretrain_sorter",
    summary="Train a sorter, a differentiable function from scores to ranks, on synthetic scores.",
    image="gpu",
    params=PretrainSorterParams,
    outputs=("sorter",),
    plots=(
        Plot(
            "sorter/history.csv",
            x="epoch",
            y="held_out_l1",
            title="L1 of ranks divided by n, held-out vectors",
        ),
    ),
)
