"""Stage register_ranking_head: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Alias, Component, ModelName, Params


class RegisterRankingHeadParams(Params):
    """Section ``register_ranking_head`` of params.yaml."""

    model: ModelName = Field(description="name in the registry; each new model adds a version")
    alias: Alias = Field(description="alias of the version; the version that had it loses it")


COMPONENT = Component(
    name="register_ranking_head",
    summary="Register the ONNX graph of a ranking head in MLflow with signature, input "
    "example and lineage.",
    image="cpu",
    params=RegisterRankingHeadParams,
    inputs=("ranking_metrics", "ranking_onnx"),
    outputs=("ranking_registration",),
    side_effects=True,
)
