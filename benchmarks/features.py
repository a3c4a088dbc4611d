"""Is the feature store as fast as memory, and does decoding keep up with the network?

python benchmarks/features.py [--images 512]
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.features import FeatureStore, FeatureWriter, Grid
from bifocal.features.extraction import NetworkFeatures, write_features

REGIONS, DIM, BATCH = 36, 2048, 192


def median_seconds(function: Callable[[Any], object], inputs: Sequence[Any]) -> float:
    """Median time of ``function`` over ``inputs``, after a warm start."""
    function(inputs[0])
    times = []
    for given in inputs:
        start = time.perf_counter()
        function(given)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def report(what: str, value: float, unit: str, bar: float, at_most: bool = False) -> None:
    """One line: the figure, its bar, ok or MISS."""
    ok = value <= bar if at_most else value >= bar
    print(f"{what:<58} {value:8.2f} {unit:<10} bar {bar:6.2f}  {'ok' if ok else 'MISS'}")


def gather_speed(folder: Path, images: int = 2048) -> None:
    """Gather of random rows against a copy of as many bytes that lie in memory in one piece."""
    random = np.random.default_rng(0)
    some = random.standard_normal((16, REGIONS, DIM)).astype(np.float16)
    with FeatureWriter(folder, regions=REGIONS, dim=DIM, metadata={}) as writer:
        for number in range(images):
            writer.add(str(number), some[number % 16])
    store = FeatureStore(folder)
    in_memory = torch.from_numpy(np.tile(some, (images // 16, 1, 1)))
    batches = [random.integers(0, images - BATCH, BATCH) for _ in range(60)]
    copy = median_seconds(lambda rows: in_memory[rows[0] : rows[0] + BATCH].clone(), batches)
    gather = median_seconds(store.gather, batches)
    gigabytes = BATCH * REGIONS * DIM * 2 / 1e9
    print(f"raw copy {gigabytes / copy:.1f} GB/s, gather {gigabytes / gather:.1f} GB/s")
    report(f"gather {BATCH} x {REGIONS} x {DIM}, of the raw copy's speed", copy / gather, "", 0.8)


def resident_memory(folder: Path, gigabytes: float = 20.0) -> None:
    """Peak resident memory of one epoch in random order over a store of 20 GB, nearly all of it holes."""
    shard_size = 1024
    images = round(gigabytes * 1e9 / (REGIONS * DIM * 2 * shard_size)) * shard_size
    nothing = np.zeros((REGIONS, DIM), np.float32)
    for part, start in enumerate(range(0, images, shard_size)):
        arguments: dict[str, Any] = {"metadata": {}, "shard_size": shard_size, "part": part}
        with FeatureWriter(folder, regions=REGIONS, dim=DIM, **arguments) as writer:
            for number in range(start, start + shard_size):
                writer.add(str(number), nothing)
        full, sparse = folder / f"{part:03d}-00000.arrow", folder / "sparse"
        subprocess.run(["cp", "--sparse=always", full, sparse], check=True)
        sparse.replace(full)
    store, process, most = FeatureStore(folder), psutil.Process(), 0
    start_time = time.perf_counter()
    for rows in np.random.default_rng(0).permutation(images - images % BATCH).reshape(-1, BATCH):
        store.gather(rows)
        most = max(most, process.memory_info().rss)
    size = sum(path.stat().st_size for path in folder.glob("*.arrow")) / 1e9
    print(f"a store of {size:.1f} GB, one epoch in {time.perf_counter() - start_time:.0f} s")
    report("peak resident memory", most / 1e9, "GB", 4, at_most=True)


def extraction_speed(folder: Path, images: int, size: int = 224) -> None:
    """Images per second from files to the store, against the bare forward pass on the same batches."""
    dataset = photographs(folder / "dataset", images)
    kind = Grid("mobilenetv2_100", size=size)
    kind.backbone.network.to(memory_format=torch.channels_last)
    image_ids = list(dataset.images["image_id"])
    batch = [torch.randint(0, 256, (3, size, size), dtype=torch.uint8) for _ in range(32)]

    def forward(images: list[torch.Tensor]) -> None:
        with torch.inference_mode():
            kind.extract(images)

    process = psutil.Process()
    bare = 32 / median_seconds(forward, [batch] * 8)
    target = folder / "features"
    target.mkdir()
    before = process.memory_info().rss
    start = time.perf_counter()
    writer = FeatureWriter(target, regions=kind.regions, dim=kind.dim, metadata={})
    write_features(NetworkFeatures(kind, dataset, 32).read(image_ids), writer, total=images)
    rate = images / (time.perf_counter() - start)
    print(f"bare forward {bare:.1f} images/s, extraction {rate:.1f} images/s, on {torch.get_num_threads()} threads")
    report("extraction, of the bare forward's speed", rate / bare, "", 0.9)
    report("memory that it added", (process.memory_info().rss - before) / 1e6, "MB", 500, at_most=True)


def photographs(folder: Path, images: int) -> Dataset:
    """Smooth noise of 224 x 224 as JPEG: what decoding costs for photographs of this size."""
    random = np.random.default_rng(0)
    root = folder / "images"
    root.mkdir(parents=True)
    for number in range(images):
        coarse = random.integers(0, 256, (28, 28, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((224, 224), Image.Resampling.BICUBIC).save(root / f"{number}.jpg", quality=90)
    corpus = Corpus(
        root,
        [ImageEntry(str(number), f"{number}.jpg", "train") for number in range(images)],
        [CaptionEntry(number, str(number), "noise") for number in range(images)],
    )
    write_dataset(folder, "noise", corpus, copy_images=False, max_pixels=10**7, max_rejected_fraction=0.0)
    return read_dataset(folder)


def main() -> None:
    """Print each figure beside its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=512, help="images to extract")
    images = parser.parse_args().images
    with tempfile.TemporaryDirectory() as folder:
        gather_speed(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        resident_memory(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        extraction_speed(Path(folder), images)


if __name__ == "__main__":
    main()
