"""Stage train_ranking_head: parameters, inputs and outputs."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot


class TrainRankingHeadParams(Params):
    """Section ``train_ranking_head`` of params.yaml."""

    task: str = Field(description="task of the dataset's labels: count or shapes of Scenes, memorability of LaMem ...")
    metric: Literal["spearman", "average_precision"] = Field(
        description="metric that chooses the best epoch: spearman for graded labels, average_precision for 0 and 1"
    )
    head: Annotated[ClassRef, FromRegistry("bifocal.ranking_heads", injected=("input_dim", "labels"))] = Field(
        description="see bifocal/ranking_heads"
    )
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="see bifocal/losses"
    )
    surrogate: Annotated[ClassRef | None, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="plain loss of a second head, which is trained in the same way for comparison; null for none"
    )
    sorter: Annotated[ClassRef | None, FromRegistry("bifocal.sorters")] = Field(
        description="sorter without weights for losses on ranks; null for the pretrained sorter, whose length must be "
        "batch_size"
    )
    epochs: int = Field(ge=1, description="passes over the images")
    batch_size: int = Field(ge=2, description="images per step, which are ranked together")
    learning_rates: list[Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="base learning rates of Adam; the head with the best metric on val is kept"
    )
    schedule: Annotated[ClassRef, FromRegistry("bifocal.training.schedules")] = Field(
        description="learning-rate schedule, see bifocal/training/schedules.py"
    )


COMPONENT = Component(
    name="train_ranking_head",
    summary="Train a head on stored features with a rank loss: ordinal regression or multi-label classification.",
    image="gpu",
    params=TrainRankingHeadParams,
    inputs=("dataset", "features", "sorter"),
    outputs=("ranking_head",),
    in_pipeline=False,
    metrics=("ranking_head/metrics.json",),
    plots=(Plot("ranking_head/history.csv", x="epoch", y="loss", title="Training loss of the ranking head"),),
    former_keys={"measure": "metric", "halve_every": "schedule: {name: Step, step_size: ..., gamma: 0.5}"},
)
