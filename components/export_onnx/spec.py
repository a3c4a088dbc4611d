"""What export_onnx reads, writes and is told."""

from pydantic import Field

from runtime.spec import Component, Params


class ExportONNXParams(Params):
    """Section ``export_onnx`` of params.yaml."""

    tolerance: float = Field(
        gt=0,
        description="greatest difference from torch allowed in any number of an embedding of unit norm, and in any "
        "feature relative to the greatest",
    )


COMPONENT = Component(
    name="export_onnx",
    summary="Write encoders and backbone as ONNX with dynamic batch, regions and time, and compare them with torch.",
    image="cpu",
    params=ExportONNXParams,
    inputs=("features", "text", "embedding"),
    outputs=("onnx",),
    code_paths=("bifocal",),
)
