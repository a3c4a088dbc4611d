"""Stage export_ranking_head: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Component, Params


class ExportRankingHeadParams(Params):
    """Section ``export_ranking_head`` of params.yaml."""

    tolerance: float = Field(
        gt=0,
        description="largest allowed difference from torch, relative to the largest score or "
        "feature",
    )


COMPONENT = Component(
    name="export_ranking_head",
    summary="Write a ranking head with its backbone as ONNX with a dynamic batch, and compare "
    "it with torch.",
    image="cpu",
    params=ExportRankingHeadParams,
    inputs=("features", "ranking_head"),
    outputs=("ranking_onnx",),
)
