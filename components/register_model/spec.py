"""What register_model reads, writes and is told."""

from pydantic import Field

from runtime.spec import Component, Params


class RegisterModelParams(Params):
    """Section ``register_model`` of params.yaml."""

    model: str = Field(min_length=1, description="name in the registry; each run adds a version")
    alias: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="that the new version gets, taken from the former")


COMPONENT = Component(
    name="register_model",
    summary="Register the ONNX model in MLflow with signature, input example and lineage.",
    image="cpu",
    params=RegisterModelParams,
    inputs=("metrics", "onnx"),
    outputs=("registration",),
    code_paths=("bifocal/datasets/images.py", "bifocal/text/tokens.py", "bifocal/text/vocabulary.py"),
)
