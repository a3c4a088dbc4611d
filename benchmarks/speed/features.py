"""Is the feature store as fast as memory, decoding as the network?

    python -m benchmarks run speed.features [--images 512] [--extractors Grid Regions ...]

Extraction and a bare forward pass of the same network take turns on the same batches, so both see
the same machine; on a CPU, both networks have folded normalizations. The ratio is the median over
the turns. The reported memory is the peak of extraction minus the peak of the forward pass.
Proposals also waits for selective search, which is slower than the network. On a CPU, decoding
takes time of the same cores, which counts where the network is fast: ``speed.extraction`` compares
with both.
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

from benchmarks.common import Report
from bifocal.backbones.folding import folded
from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.base import FeatureExtractor
from bifocal.features.extraction import CPU_BATCH, NetworkFeatures, write_features
from bifocal.features.extractors import Grid, MultiLevel, Proposals, Regions, TenCrop
from bifocal.features.extractors.base import TimmExtractor

REGIONS, DIM, BATCH = 36, 2048, 192


def seconds(function: Callable[[Any], object], argument: Any) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    function(argument)
    return time.perf_counter() - start


def copy_of(features: torch.Tensor) -> Callable[[Any], torch.Tensor]:
    """Return a function that copies BATCH contiguous images, from the first row on."""
    return lambda rows: features[rows[0] : rows[0] + BATCH].clone()


def gather_speed(report: Report, folder: Path, images: int = 2048) -> None:
    """Compare gathering random rows with copying as many contiguous bytes in memory."""
    random = np.random.default_rng(0)
    some = random.standard_normal((16, REGIONS, DIM)).astype(np.float16)
    with FeatureWriter(folder, regions=REGIONS, dim=DIM, metadata={}) as writer:
        for number in range(images):
            writer.add(str(number), some[number % 16])
    store = FeatureStore(folder)
    in_memory = torch.from_numpy(np.tile(some, (images // 16, 1, 1)))
    batches = [random.integers(0, images - BATCH, BATCH) for _ in range(60)]
    # Turns of twenty: each call reuses the memory of its previous result, as in training.
    turns = [
        [
            float(np.median([seconds(work, rows) for rows in batches]))
            for work in (copy_of(in_memory), store.gather)
        ]
        for batches in np.split(np.array(batches), 3)
    ]
    copy, gather = BATCH * REGIONS * DIM * 2 / 1e9 / np.median(turns, axis=0)
    print(f"raw copy {copy:.1f} GB/s, gather {gather:.1f} GB/s")
    ratio = float(np.median([copied / gathered for copied, gathered in turns]))
    report.add(f"gather {BATCH} x {REGIONS} x {DIM}, relative to a copy", ratio, at_least=0.8)


def resident_memory(report: Report, folder: Path, gigabytes: float = 20.0) -> None:
    """Measure the peak resident memory of one epoch in random order, on a sparse store of 20 GB."""
    images_per_file = 1024
    images = round(gigabytes * 1e9 / (REGIONS * DIM * 2 * images_per_file)) * images_per_file
    nothing = np.zeros((REGIONS, DIM), np.float32)
    for part, start in enumerate(range(0, images, images_per_file)):
        arguments: dict[str, Any] = {
            "metadata": {},
            "images_per_file": images_per_file,
            "shard": part,
        }
        with FeatureWriter(folder, regions=REGIONS, dim=DIM, **arguments) as writer:
            for number in range(start, start + images_per_file):
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
    report.add("peak resident memory of an epoch over 20 GB", most / 1e9, "GB", at_most=4)


BACKBONE = "mobilenetv2_100"  # a fast one, so decoding has little time
LAYERS = ("blocks.3.0", "blocks.3.1", "blocks.3.2", "blocks.3.3")
EXTRACTORS: dict[str, tuple[Callable[[], FeatureExtractor], int]] = {
    "Grid": (lambda: Grid(BACKBONE), 1),
    "TenCrop": (lambda: TenCrop(BACKBONE), 8),
    "MultiLevel": (lambda: MultiLevel(BACKBONE, layers=LAYERS), 4),
    "Regions": (lambda: Regions("fasterrcnn_mobilenet_v3_large_320_fpn"), 4),
    "Proposals": (lambda: Proposals(BACKBONE, stage=4), 8),
}
"""Each extractor, and the divisor of its number of images: slow ones get fewer."""


def extraction_speed(
    report: Report, name: str, folder: Path, dataset: Dataset, turns: int = 5, batch_size: int = 32
) -> None:
    """Compare extraction, from image files to the store, with a bare forward pass on the same
    batches."""
    build, divisor = EXTRACTORS[name]
    extractor, bare = build(), build()
    image_ids = [str(image_id) for image_id in dataset.images["image_id"]]
    image_ids = image_ids[: max(batch_size, len(image_ids) // divisor)]
    reader = NetworkFeatures(extractor, dataset, batch_size)
    batches = list(reader.batches(image_ids, min(batch_size, CPU_BATCH)))
    bare.backbone.network.to(memory_format=torch.channels_last)
    if isinstance(bare, TimmExtractor):
        bare.backbone.network = folded(bare.backbone.network, bare.tapped)
    with torch.inference_mode():
        bare.extract(batches[0])
    times: list[tuple[float, float]] = []
    forward_memory, memory = PeakMemory(), PeakMemory()
    for turn in range(turns):
        start = time.perf_counter()
        with forward_memory, torch.inference_mode():
            for batch in batches:
                bare.extract(batch)
        forwarded = time.perf_counter()
        with memory:
            writer = FeatureWriter(
                folder,
                regions=reader.regions,
                dim=reader.dim,
                metadata={},
                images_per_file=64,
                shard=turn,
            )
            write_features(reader.read(image_ids), writer, total=len(image_ids))
        times.append((time.perf_counter() - forwarded, forwarded - start))
    rates = [len(image_ids) / median for median in np.median(times, axis=0)]
    print(
        f"{name}: extraction {rates[0]:.1f} images/s, forward pass {rates[1]:.1f} images/s, on "
        f"{torch.get_num_threads()} threads, load {psutil.getloadavg()[0]:.1f}"
    )
    ratio = float(np.median([forward / extraction for extraction, forward in times]))
    report.add(f"{name}, speed relative to the forward pass", ratio, at_least=0.9)
    beyond = (memory.most - forward_memory.most) / 1e6
    report.add(f"{name}, peak memory beyond the forward pass", beyond, "MB", at_most=1000)


class PeakMemory:
    """Measures the peak resident memory inside a ``with``, which may be entered again, every 50 ms.

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
    """Write smooth noise as JPEG, 224 x 224: decoding it costs as much as a photograph."""
    random = np.random.default_rng(0)
    root = folder / "images"
    root.mkdir(parents=True)
    for number in range(images):
        coarse = random.integers(0, 256, (28, 28, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((224, 224), Image.Resampling.BICUBIC).save(
            root / f"{number}.jpg", quality=90
        )
    corpus = Corpus(
        root,
        [ImageEntry(str(number), f"{number}.jpg", "train") for number in range(images)],
        [CaptionEntry(number, str(number), "noise") for number in range(images)],
    )
    write_dataset(
        folder, "noise", corpus, copy_images=False, max_pixels=10**7, max_rejected_fraction=0.0
    )
    return read_dataset(folder)


def main() -> None:
    """Report the speed and the memory of the store and of each extractor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=512, help="images to extract")
    parser.add_argument(
        "--extractors", nargs="*", default=list(EXTRACTORS), choices=list(EXTRACTORS)
    )
    parser.add_argument("--extraction-only", action="store_true", help="skip the store")
    options = parser.parse_args()
    report = Report("speed.features")
    for measure in () if options.extraction_only else (gather_speed, resident_memory):
        with tempfile.TemporaryDirectory() as folder:
            measure(report, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        dataset = photographs(Path(folder) / "dataset", options.images)
        for name in options.extractors:
            target = Path(folder) / name
            target.mkdir()
            extraction_speed(report, name, target, dataset)
    report.write()


if __name__ == "__main__":
    main()
