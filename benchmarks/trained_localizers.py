"""Models of ``bifocal train`` that point by the localizer of their encoder, for
``quality.pointing``."""

from pathlib import Path

from benchmarks.pointing_data import WEIGHTS
from benchmarks.speed.first_use import write_photographs
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.pointing import Pointer, open_pointer
from components.catalog import pipeline_components
from pipelines.app.run_folder import ARTIFACTS, use_store_of
from pipelines.app.stages import run_stages
from pipelines.app.training.recipe import compose

PHOTOGRAPHS = 1000
LOCALIZERS = {
    "SMILERegions": (),
    "MultiLevelHeatmap": (Path(__file__).with_name("multi_level.yaml"),),
}
"""Localizers of two encoders, each with the recipe of its training."""

UNUSED = ("evaluate", "register_model")


def trained_pointer(localizer: str, data: Path, folder: Path) -> Pointer:
    """Train on photographs of Flickr8k with five captions each, unless it is done, and return the
    model's pointer."""
    photos = folder / "photos"
    if not photos.is_dir():
        write_photographs(data / "flickr8k", folder / "drawn", PHOTOGRAPHS)
        (folder / "drawn").rename(photos)
    settings = (f"export_onnx.localizer={localizer}",)
    values = compose(str(photos.resolve()), data / WEIGHTS, LOCALIZERS[localizer], settings).values
    run = folder / localizer
    use_store_of(run)
    stages = [
        stage for stage in pipeline_components("late_interaction") if stage.name not in UNUSED
    ]
    run_stages(run, values, stages)
    onnx = run / ARTIFACTS / "onnx"
    pointer = open_pointer(onnx, Embedder(onnx))
    assert pointer is not None  # the localizer is exported
    return pointer
