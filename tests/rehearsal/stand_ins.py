"""Weights in place of those that a recipe downloads: the smallest backbone of a family, trained on drawn scenes."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.backbones.weights import TrainOnPhrases
from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.images import open_image
from bifocal.datasets.scenes.scenes import Scenes
from bifocal.features.extractors import Grid

SEED, IMAGES = 7, 300
"""The scenes of the stand-ins are those of no miniature corpus."""
CALIBRATION_IMAGES = 48


class StandIn(NamedTuple):
    """A small network of a family.

    Attributes:
        model_arguments: of ``timm.create_model``.
        epochs: passes over the drawn scenes; with 0 the weights stay random, and only the batch normalizations are
            set to the statistics of the scenes.
    """

    backbone: str
    model_arguments: dict[str, Any]
    epochs: int
    size: int = 96
    stage: int | None = 3


STAND_INS = {
    "resnet": StandIn("resnet10t", {"channels": [32, 64, 96, 128], "stem_width": 16}, epochs=12),
    "vgg": StandIn("vgg11_bn", {"mlp_ratio": 0.0625}, epochs=0, size=64, stage=None),
    "pnasnet": StandIn("pnasnet5large", {}, epochs=0, size=64, stage=None),
}


def write_stand_in(name: str, path: Path) -> None:
    """Write the weights of the stand-in ``name``."""
    chosen = STAND_INS[name]
    torch.manual_seed(SEED)
    grid = Grid(chosen.backbone, chosen.stage, chosen.size, model_arguments=chosen.model_arguments)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        dataset = _scenes(Path(folder) / "dataset")
        if chosen.epochs:
            features = Path(folder) / "features"
            features.mkdir()
            training = TrainOnPhrases(epochs=chosen.epochs, batch_size=16, learning_rate=0.008, min_count=8)
            training.prepare(grid, dataset, features, batch_size=16, seed=SEED)
            path.write_bytes((features / WEIGHTS_FILE).read_bytes())
        else:
            calibrate(grid, dataset)
            save_file(grid.backbone.network.state_dict(), path)


def calibrate(grid: Grid, dataset: Dataset) -> None:
    """Set the statistics of the batch normalizations to those of a few images, layer by layer."""
    network = grid.backbone.network
    norms = [module for module in network.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    image_ids = dataset.images["image_id"][:CALIBRATION_IMAGES]
    with torch.no_grad():
        grid.feature_map(torch.stack([grid.preprocess(open_image(dataset.image_path(name))) for name in image_ids]))
    network.eval()


def _scenes(folder: Path) -> Dataset:
    write_dataset(Scenes(SEED, train=IMAGES, val=8, test=0, size=96), folder)
    return read_dataset(folder)
