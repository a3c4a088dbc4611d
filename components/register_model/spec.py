"""Stage register_model: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Component, Params


class RegisterModelParams(Params):
    """Section ``register_model`` of params.yaml."""

    model: str = Field(min_length=1, description="name in the registry; each new model adds a version")
    alias: str = Field(
        pattern=r"^[a-z][a-z0-9_-]*$", description="alias of the version; the version that had it loses it"
    )


COMPONENT = Component(
    name="register_model",
    summary="Register the ONNX model in MLflow with signature, input example and lineage.",
    image="cpu",
    params=RegisterModelParams,
    inputs=("metrics", "onnx"),
    outputs=("registration",),
    side_effects=True,
)
