"""What train_ranking_head reads, writes and is told."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot


class TrainRankingHeadParams(Params):
    """Section ``train_ranking_head`` of params.yaml."""

    task: str = Field(description="of the dataset's labels: count or shapes of Scenes, memorability of LaMem ...")
    measure: Literal["spearman", "average_precision"] = Field(
        description="by which the best epoch is chosen: spearman of graded labels, average_precision of 0 and 1"
    )
    head: Annotated[ClassRef, FromRegistry("bifocal.ranking_heads", injected=("input_dim", "labels"))] = Field(
        description="see bifocal/ranking_heads"
    )
    loss: Annotated[ClassRef, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="see bifocal/losses; one that takes a sorter gets the one below"
    )
    sorter: Annotated[ClassRef | None, FromRegistry("bifocal.sorters")] = Field(
        description="one without weights; null for that of pretrain_sorter, whose length must be batch_size"
    )
    surrogate: Annotated[ClassRef | None, FromRegistry("bifocal.losses", injected=("sorter",))] = Field(
        description="a plain loss that a second head is fitted with, the same way, to be compared; null for none"
    )
    epochs: int = Field(ge=1, description="passes over the images")
    batch_size: int = Field(ge=2, description="images; the scores that are ranked")
    learning_rates: list[Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="of Adam; each is tried, and the head that is best on the split val is kept"
    )
    halve_every: int = Field(ge=1, description="epochs after which the learning rate is halved")


COMPONENT = Component(
    name="train_ranking_head",
    summary="Fit a head over stored features with a rank loss: ordinal regression, or multi-label classification.",
    image="gpu",
    params=TrainRankingHeadParams,
    inputs=("dataset", "features", "sorter"),
    outputs=("ranking_head",),
    in_pipeline=False,
    code_paths=("bifocal",),
    metrics=("ranking_head/metrics.json",),
    plots=(Plot("ranking_head/history.csv", x="epoch", y="validation", title="Ranking head: measure on val"),),
)
