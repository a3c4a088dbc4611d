"""Stage register_model: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Alias, Component, ModelName, Params


class RegisterModelParams(Params):
    """Section ``register_model`` of params.yaml."""

    model: ModelName = Field(description="name in the registry; each new model adds a version")
    alias: Alias = Field(description="alias of the version; the version that had it loses it")


COMPONENT = Component(
    name="register_model",
    summary="Register the ONNX model in MLflow with signature, input example and lineage.",
    image="cpu",
    params=RegisterModelParams,
    inputs=("metrics", "onnx"),
    outputs=("registration",),
    side_effects=True,
)
