"""Stage train_ranking_head: parameters, inputs and outputs."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Plot, UserPath
from runtime.training import PhaseParams, StepParams


class TrainRankingHeadParams(StepParams):
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
    phases: list[PhaseParams] = Field(
        min_length=1,
        description="trainings in order, each from the best weights of the one before; a "
        "phase that does not improve the metric is undone",
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
