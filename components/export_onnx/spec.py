"""Stage export_onnx: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Component, Params


class ExportONNXParams(Params):
    """Section ``export_onnx`` of params.yaml."""

    tolerance: float = Field(
        gt=0,
        description="largest allowed difference from torch: of a value of an embedding of unit norm, and of a feature "
        "relative to the largest feature",
    )


COMPONENT = Component(
    name="export_onnx",
    summary="Write encoders and backbone as ONNX with dynamic batch, regions and time, and compare them with torch.",
    image="cpu",
    params=ExportONNXParams,
    inputs=("features", "text", "embedding"),
    outputs=("onnx",),
)
