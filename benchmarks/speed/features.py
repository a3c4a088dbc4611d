"""Is the feature store as fast as memory, and does decoding keep up with the network?

python -m benchmarks.speed.features [--images 512] [--kinds Grid RMAC ...]

Extraction and the bare forward pass on the same batches take turns, so that both see the same machine; the ratio is
the median over the turns, and the memory is what extraction needs beyond that of the forward pass. Selective search,
which Proposals waits for, is no decoding: its forward pass is faster.
"""

import argparse
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image

from bifocal.backbones.whitening import Whitening
from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.base import FeatureExtractor
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.extractors import RMAC, Grid, MultiLevel, Proposals, Regions, TenCrop

REGIONS, DIM, BATCH = 36, 2048, 192


def seconds(function: Callable[[Any], object], given: Any) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function(given)
    return time.perf_counter() - start


def report(what: str, value: float, unit: str, bar: float, at_most: bool = False) -> None:
    """One line: the figure, its bar, ok or MISS."""
    ok = value <= bar if at_most else value >= bar
    print(f"{what:<58} {value:8.2f} {unit:<10} bar {bar:6.2f}  {'ok' if ok else 'MISS'}")


def copy_of(features: torch.Tensor) -> Callable[[Any], torch.Tensor]:
    """Copies as many images as there are rows, from the first of them on."""
    return lambda rows: features[rows[0] : rows[0] + BATCH].clone()


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
    # In turns of twenty, so that each finds the memory that its last result has left, as it does in training.
    turns = [
        [float(np.median([seconds(work, rows) for rows in batches])) for work in (copy_of(in_memory), store.gather)]
        for batches in np.split(np.array(batches), 3)
    ]
    copy, gather = BATCH * REGIONS * DIM * 2 / 1e9 / np.median(turns, axis=0)
    print(f"raw copy {copy:.1f} GB/s, gather {gather:.1f} GB/s")
    ratio = float(np.median([copied / gathered for copied, gathered in turns]))
    report(f"gather {BATCH} x {REGIONS} x {DIM}, of the raw copy's speed", ratio, "", 0.8)


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


BACKBONE = "mobilenetv2_100"  # a quick one, so that decoding has little time
LAYERS = ("blocks.2", "blocks.3", "blocks.4", "blocks.6")
KINDS: dict[str, tuple[Callable[[], FeatureExtractor], int]] = {
    "Grid": (lambda: Grid(BACKBONE), 1),
    "TenCrop": (lambda: TenCrop(BACKBONE), 8),
    "MultiLevel": (lambda: MultiLevel(BACKBONE, layers=LAYERS), 4),
    "RMAC": (lambda: _whitened(RMAC(BACKBONE)), 8),
    "Regions": (lambda: Regions("fasterrcnn_mobilenet_v3_large_320_fpn"), 4),
    "Proposals": (lambda: Proposals(BACKBONE, stage=4), 8),
}
"""Each kind, and what part of the images it is given: one in so many."""


def _whitened(kind: RMAC) -> RMAC:
    kind.whitening = Whitening(torch.zeros(kind.channels), torch.eye(kind.channels))
    return kind


def extraction_speed(name: str, folder: Path, dataset: Dataset, turns: int = 5, batch_size: int = 32) -> None:
    """Images per second from files to the store, against the bare forward pass on the same batches."""
    make, part = KINDS[name]
    kind = make()
    image_ids = [str(image_id) for image_id in dataset.images["image_id"]]
    image_ids = image_ids[: max(batch_size, len(image_ids) // part)]
    reader = NetworkFeatures(kind, dataset, batch_size)
    batches = list(reader.batches(image_ids))
    with torch.inference_mode():
        kind.extract(batches[0])
    times: list[tuple[float, float]] = []
    forward_memory, memory = PeakMemory(), PeakMemory()
    for turn in range(turns):
        start = time.perf_counter()
        with forward_memory, torch.inference_mode():
            for batch in batches:
                kind.extract(batch)
        forwarded = time.perf_counter()
        with memory:
            writer = FeatureWriter(
                folder, regions=reader.regions, dim=reader.dim, metadata={}, shard_size=64, part=turn
            )
            write_features(reader.read(image_ids), writer, total=len(image_ids))
        times.append((time.perf_counter() - forwarded, forwarded - start))
    rates = [len(image_ids) / median for median in np.median(times, axis=0)]
    print(
        f"{name}: extraction {rates[0]:.1f} images/s, bare forward {rates[1]:.1f} images/s, on "
        f"{torch.get_num_threads()} threads, load {psutil.getloadavg()[0]:.1f}"
    )
    ratio = float(np.median([bare / extraction for extraction, bare in times]))
    report(f"{name}, of the bare forward's speed", ratio, "", 0.9)
    beyond = (memory.most - forward_memory.most) / 1e6
    report(f"{name}, peak memory beyond the bare forward's", beyond, "MB", 1000, at_most=True)


class PeakMemory:
    """The most resident memory inside a ``with``, which may be entered again; looked at every 50 ms.

    Attributes:
        most: bytes.
    """

    def __init__(self) -> None:
        self.most, self._process = 0, psutil.Process()

    def __enter__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.most = max(self.most, self._process.memory_info().rss)


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
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS), help="of features")
    parser.add_argument("--extraction-only", action="store_true", help="leave the store out")
    options = parser.parse_args()
    for part in () if options.extraction_only else (gather_speed, resident_memory):
        with tempfile.TemporaryDirectory() as folder:
            part(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        dataset = photographs(Path(folder) / "dataset", options.images)
        for name in options.kinds:
            target = Path(folder) / name
            target.mkdir()
            extraction_speed(name, target, dataset)


if __name__ == "__main__":
    main()
