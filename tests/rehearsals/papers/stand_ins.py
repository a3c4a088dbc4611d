"""Weights in place of a recipe's downloads: the smallest backbone of a family, trained on drawn
scenes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.scenes.scenes import Scenes
from bifocal.features.extractors import Grid
from bifocal.onnx.images import open_image
from bifocal.training.weights import TrainOnPhrases

SEED = 7
"""Seed of the stand-ins' scenes: no miniature corpus has them."""
CALIBRATION_IMAGES = 48


class StandIn(NamedTuple):
    """A small network of a family.

    Attributes:
        model_arguments: of ``timm.create_model``.
        epochs: passes over the drawn scenes for each of the stages.
        stages: whose cells are trained to predict words, one after the other, as in timm's
            ``feature_info``.
        images: drawn scenes.
    """

    backbone: str
    model_arguments: dict[str, Any]
    epochs: int
    size: int = 96
    stages: tuple[int, ...] = (3,)
    images: int = 300


RESNET: dict[str, Any] = {"channels": [32, 64, 96, 128], "stem_width": 16}
STAND_INS = {
    "resnet": StandIn("resnet10t", RESNET, epochs=12),
    "resnet_dense": StandIn(
        "resnet10t", RESNET | {"output_stride": 8}, epochs=12, stages=(4,), images=480
    ),
    "vgg": StandIn("vgg11_bn", {"mlp_ratio": 0.0625}, epochs=6, size=48, stages=(3, 4)),
}


def write_stand_in(chosen: StandIn, path: Path) -> None:
    """Write the weights of a stand-in: the same bytes in every run on a machine, whatever its
    threads and seeds are."""
    with _repeatable():
        state = _train(chosen)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in state.items()}, path)


def _train(chosen: StandIn) -> dict[str, torch.Tensor]:
    grids = [
        Grid(chosen.backbone, stage, chosen.size, model_arguments=chosen.model_arguments)
        for stage in chosen.stages
    ]
    with TemporaryDirectory() as folder:
        dataset = _scenes(Path(folder) / "dataset", chosen.images)
        training = TrainOnPhrases(
            epochs=chosen.epochs, batch_size=16, learning_rate=0.008, min_count=8
        )
        for grid in grids:
            grid.backbone = grids[0].backbone
            features = Path(folder) / f"stage{grid.stage}"
            features.mkdir()
            training.prepare(grid, dataset, features, seed=SEED)
        pixels = torch.stack([grid.preprocess(open_image(file)) for file in _files(dataset)])
        with torch.no_grad():
            scale_head(grid, pixels)
    state: dict[str, torch.Tensor] = grid.backbone.network.state_dict()
    return state


@contextmanager
def _repeatable() -> Iterator[None]:
    """Compute in one thread, with deterministic algorithms and random numbers from ``SEED``;
    restore all three."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        torch.set_num_threads(1)  # the order of a sum depends on the threads
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


def scale_head(grid: Grid, pixels: torch.Tensor) -> None:
    """Give the channels of VGG's fc6 and fc7, which no stand-in trains, mean 0 and variance 1
    before their ReLU."""
    network = grid.backbone.network
    maps = network.forward_features(grid.backbone.normalize(pixels))
    for layer in network.pre_logits.modules() if hasattr(network, "pre_logits") else ():
        if isinstance(layer, torch.nn.Conv2d):
            outputs: list[torch.Tensor] = []
            # The ReLU that follows works in place.
            hook = layer.register_forward_hook(
                lambda _, inputs, y, outputs=outputs: outputs.append(y.clone())
            )
            network.forward_head(maps, pre_logits=True)
            hook.remove()
            std, mean = torch.std_mean(outputs[0], dim=(0, 2, 3))
            layer.weight.div_(std.view(-1, 1, 1, 1))
            layer.bias.sub_(mean).div_(std)


def _files(dataset: Dataset) -> list[Path]:
    return [dataset.image_path(name) for name in dataset.images["image_id"][:CALIBRATION_IMAGES]]


def _scenes(folder: Path, images: int) -> Dataset:
    corpus = Scenes(SEED, train=images, val=8, test=0, size=96).read(folder / "images")
    options = {"copy_images": True, "max_pixels": 10_000, "max_rejected_fraction": 0.0}
    write_dataset(folder, "Scenes", corpus, **options)
    return read_dataset(folder)


def write_small(path: Path) -> None:
    """Write the smallest stand-in."""
    write_stand_in(STAND_INS["resnet"]._replace(epochs=1, size=48, stages=(2, 3), images=16), path)
