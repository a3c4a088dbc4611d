"""Stage train_ranking_head: parameters, inputs and outputs."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot, StrictModel, UserPath


class RankingPhaseParams(StrictModel):
    """Learning rate of some epochs, and the modules that train in them."""

    epochs: int = Field(ge=1, description="passes over the images in this phase")
    learning_rate: float = Field(
        gt=0, description="base learning rate, which the schedule multiplies"
    )
    schedule: Annotated[ClassRef, FromRegistry("bifocal.training.schedules")] = Field(
        description="factor of the learning rate; epochs count from the start of the phase"
    )
    frozen_until: dict[str, Annotated[int, Field(ge=0)] | None] = Field(
        description="epochs of this phase during which a module is frozen, null for all: "
        "{backbone: null}"
    )
    learning_rate_factors: dict[str, Annotated[float, Field(gt=0)]] = Field(
        description="factors of the learning rates of modules: {backbone: 0.1}; the most "
        "specific name wins"
    )


class TrainRankingHeadParams(Params):
    """Section ``train_ranking_head`` of params.yaml."""

    task: str = Field(
        description="task of the dataset's labels: count or shapes of Scenes, memorability of "
        "LaMem ..."
    )
    metric: Literal["spearman", "average_precision"] = Field(
        description="metric that chooses the best epoch: spearman for graded labels, "
        "average_precision for 0 and 1"
    )
    backbone: (
        Annotated[
            ClassRef, FromRegistry("bifocal.ranking_heads.backbones", injected=("input_dim",))
        ]
        | None
    ) = Field(
        description="network below the head, which trains with it; null for a head on stored "
        "features"
    )
    embedding: UserPath | None = Field(
        description="artifact embedding of another run, whose image encoder the "
        "EncoderBackbone starts from; null for the weights that extract_features "
        "stored"
    )
    head: Annotated[
        ClassRef, FromRegistry("bifocal.ranking_heads", injected=("input_dim", "labels"))
    ] = Field(description="see bifocal/ranking_heads")
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="loss of a batch, for all phases; a loss with a sorter gets the key sorter"
    )
    surrogate: Annotated[ClassRef | None, FromRegistry("bifocal.losses", injected=("sorter",))] = (
        Field(
            description="plain loss of a second model, which is trained in the same way for "
            "comparison; null for none"
        )
    )
    sorter: Annotated[ClassRef | None, FromRegistry("bifocal.sorters")] = Field(
        description="sorter without weights for losses on ranks; null for the pretrained "
        "sorter, whose length must be batch_size"
    )
    batch_size: int = Field(ge=2, description="images per step, which are ranked together")
    phases: list[RankingPhaseParams] = Field(
        min_length=1,
        description="trainings in order, each from the best weights of the one before; a "
        "phase that does not improve the metric is undone",
    )
    optimizer: Annotated[ClassRef, FromRegistry("torch.optim", injected=("params", "lr"))] = Field(
        description="class of torch.optim; the phase sets its learning rate"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        description="precision of the matrix products in training; a CPU without bfloat16 "
        "instructions takes float32"
    )
    max_grad_norm: float | None = Field(
        gt=0, description="l2 norm to which gradients are clipped; null for no clipping"
    )
    micro_batch_size: int | None = Field(
        ge=1,
        description="images that the model scores at a time to save memory; the loss still "
        "ranks the whole batch; null for the whole batch",
    )
    checkpoint_every_seconds: float = Field(
        ge=0,
        description="least time between two checkpoints inside an epoch, in s: work that a "
        "killed run can lose; 0 for one after every step",
    )

    @property
    def unused_inputs(self) -> frozenset[str]:
        return frozenset() if self.sorter is None else frozenset({"sorter"})

    def conflicts(self) -> Iterator[str]:
        from bifocal.ranking_heads.model import backbone_conflicts, sorter_conflicts

        modules = [
            name
            for phase in self.phases
            for name in (*phase.frozen_until, *phase.learning_rate_factors)
        ]
        yield from backbone_conflicts(self.backbone, self.embedding, modules)
        yield from sorter_conflicts(
            self.sorter, [loss for loss in (self.loss, self.surrogate) if loss is not None]
        )


COMPONENT = Component(
    name="train_ranking_head",
    summary="Train a ranking head, and the backbone below it, with a rank loss: ordinal "
    "regression or multi-label classification.",
    image="gpu",
    params=TrainRankingHeadParams,
    inputs=("dataset", "features", "sorter"),
    outputs=("ranking_head", "ranking_metrics"),
    metrics=("ranking_metrics/metrics.json",),
    plots=(
        Plot(
            "ranking_metrics/history.csv",
            x="epoch",
            y="loss",
            title="Training loss of the ranking head",
        ),
        Plot("ranking_metrics/history.csv", x="epoch", y="monitor", title="Metric on val"),
    ),
)
