"""What pretrain_sorter writes and is told."""

from typing import Annotated

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot


class PretrainSorterParams(Params):
    """Section ``pretrain_sorter`` of params.yaml."""

    sorter: Annotated[ClassRef, FromRegistry("bifocal.sorters", injected=("length",))] = Field(
        description="see bifocal/sorters; one without weights is stored as it is, and nothing below is used"
    )
    length: int = Field(ge=2, description="scores per vector; the most, for a sorter of several lengths")
    batch_size: int = Field(ge=1, description="vectors")
    learning_rate: float = Field(gt=0, description="of Adam")
    halve_every: int = Field(ge=1, description="epochs after which the learning rate is halved")
    vectors_per_epoch: int = Field(ge=1, description="drawn anew for every epoch")
    epochs: int = Field(ge=1, description="at most")
    patience: int = Field(ge=1, description="epochs in which the held-out L1 must fall, or training ends")
    tolerance: float = Field(ge=0, lt=1, description="fraction by which it must fall")
    depths: list[Annotated[int, Field(ge=1)]] = Field(
        description="blocks of convolutional sorters to train as well, for the depth curve; [] for none"
    )


COMPONENT = Component(
    name="pretrain_sorter",
    summary="Train a sorter, which turns scores into ranks with a gradient, on synthetic scores.",
    image="gpu",
    params=PretrainSorterParams,
    outputs=("sorter",),
    code_paths=("bifocal/sorters", "bifocal/checkpoint.py"),
    plots=(Plot("sorter/history.csv", x="epoch", y="held_out_l1", title="L1 of ranks divided by n"),),
)
