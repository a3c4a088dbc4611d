"""Stage export_onnx: parameters, inputs and outputs."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params


class ExportONNXParams(Params):
    """Section ``export_onnx`` of params.yaml."""

    tolerance: float = Field(
        gt=0,
        description="largest allowed difference from torch: of a value of an embedding of "
        "unit norm, and of a feature relative to the largest feature; it holds "
        "for float32",
    )
    precision: Literal["float32", "int8"] = Field(
        default="float32",
        description="numbers of the weights in the files; int8 makes the graphs about four "
        "times smaller",
    )
    max_recall_loss: float = Field(
        default=1.0,
        ge=0,
        description="with int8, largest allowed loss of R@1 (mean of both directions, on the "
        "split val) to the graphs of float32, in percentage points",
    )
    localizer: Annotated[ClassRef, FromRegistry("bifocal.localization")] | None = Field(
        default=None,
        description="part of bifocal.localization that finds phrases in the served model; "
        "null for the image encoder's own",
    )
    pointing: Annotated[ClassRef, FromRegistry("bifocal.localization.heads")] | None = Field(
        default=None,
        description="part of bifocal.localization.heads that finds phrases by the backbone's "
        "classifier, in place of the localizer; null for the localizer",
    )


COMPONENT = Component(
    name="export_onnx",
    summary="Write encoders and backbone as ONNX with dynamic batch, regions and time, and "
    "compare them with torch.",
    image="cpu",
    params=ExportONNXParams,
    inputs=("dataset", "features", "text", "embedding"),
    outputs=("onnx",),
)
