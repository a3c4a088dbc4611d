"""Does the extraction of features reach ONNX Runtime?

    OMP_NUM_THREADS=1 python -m benchmarks run speed.extraction [--backbones tf_efficientnet_lite2
    ...]

Compares the CPU time of the last map of timm backbones, with the decoding of the images, with ONNX
Runtime on the same graph and decoded images, and with both of these parts, in turn. The weights are
random.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import psutil
import torch
from torchvision.transforms.functional import center_crop

from benchmarks.common import Report, cpu_seconds
from benchmarks.speed.features import photographs
from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.datasets import Dataset
from bifocal.export.extraction import FEWEST, GRAPH, use_onnx, write_backbone
from bifocal.features.extraction import CPU_BATCH, NetworkFeatures
from bifocal.features.extractors import Grid
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.serialization import write_tensors
from bifocal.training.weights.source import open_source

BACKBONES = ("tf_efficientnet_lite2", "resnet50", "mobilenetv2_100")


def onnx_ratio(report: Report, name: str, dataset: Dataset, folder: Path, turns: int = 7) -> None:
    """Compare the CPU time of extraction with ONNX Runtime on the same graph and images, with the
    same threads."""
    image_ids = [str(image_id) for image_id in dataset.images["image_id"]]
    folder.mkdir()
    weights = folder / "random.safetensors"
    write_tensors(weights, Grid(name).backbone.network.state_dict(), {})
    extractor, of_file = (
        {"name": "Grid", "backbone": name},
        {"name": "FromFile", "path": str(weights)},
    )
    source, metadata, _ = open_source(extractor, of_file, dataset, folder, batch_size=32, seed=0)
    assert isinstance(source, NetworkFeatures)
    expected = torch.stack([regions.features for _, regions in source.read(image_ids)])
    by_torch = cpu_seconds(lambda: list(source.read(image_ids)))
    use_onnx(source, metadata, folder, FEWEST)
    found = torch.stack([regions.features for _, regions in source.read(image_ids)])
    error = float((found - expected).abs().max() / expected.abs().max())

    write_backbone(metadata, folder / WEIGHTS_FILE, folder)
    session = open_session(folder / GRAPH, torch.get_num_threads())
    pixels = torch.stack([image for batch in source.batches(image_ids) for image in batch])
    batches = np.split(
        center_crop(pixels, metadata["preprocessing"]["size"]).numpy(), len(image_ids) // CPU_BATCH
    )

    def bare() -> None:
        for batch in batches:
            run_graph(session, (batch,))

    def measured() -> tuple[float, float, float]:
        read, decode = lambda: list(source.read(image_ids)), lambda: list(source.batches(image_ids))
        return cpu_seconds(read), cpu_seconds(bare), cpu_seconds(decode)

    times = [measured() for _ in range(turns)]
    ours, theirs, decoding = 1000 * np.median(times, axis=0) / len(image_ids)
    reference = (
        f"{ours:.1f} and {theirs:.1f} ms per image, {decoding:.1f} decoding; load "
        f"{psutil.getloadavg()[0]:.1f}"
    )
    ratio = float(np.median([mine / floor for mine, floor, _ in times]))
    report.add(f"{name}, extraction over ONNX Runtime", ratio, at_most=1.15, reference=reference)
    ratio = float(np.median([mine / (floor + decode) for mine, floor, decode in times]))
    report.add(f"{name}, extraction over decoding and ONNX Runtime", ratio)
    report.add(f"{name}, extraction by torch, per image", 1000 * by_torch / len(image_ids), "ms")
    report.add(f"{name}, largest difference from torch, relative", error, at_most=1e-3)


def main() -> None:
    """Report the ratio, the time by torch, and the difference of the features for each backbone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbones", nargs="+", default=BACKBONES)
    options = parser.parse_args()
    report = Report("speed.extraction")
    with tempfile.TemporaryDirectory() as folder:
        dataset = photographs(Path(folder) / "dataset", 32)
        for name in options.backbones:
            onnx_ratio(report, name, dataset, Path(folder) / name)
    report.write()


if __name__ == "__main__":
    main()
