"""How long do SMILE and the learned sorters take, beside the thesis's times?

    python -m benchmarks run speed.published [--only smile sorters]

Table 3.7: SMILE embeds 5,000 images of 36 regions and 25,000 captions in batches of 128, and ranks
them in five folds of 1,000 images, with re-ranking; loading is not timed. Weights, regions and
words are random: the time does not depend on them. A caption has 8 words and a Poisson number of
further ones, 10.5 in the mean. Section 5.3.2: time of a training step of the sorters on 256 vectors
of length 100, and of its forward pass. On a CPU, the times of sorters are CPU times. The thesis
names no hardware; the authors' code needs a GPU.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from benchmarks.common import Report
from bifocal.image_encoders import SMILEEncoder
from bifocal.metrics.retrieval.protocols import PROTOCOLS, protocol_ranks, split_folds
from bifocal.registry import build
from bifocal.text_encoders import SRUEncoder

PARTS = ("smile", "sorters")
IMAGES, CAPTIONS, REGIONS, BATCH = 5000, 5, 36, 128
WORDS, SHORTEST, FURTHER = 10_000, 8, 2.5
SORTERS, LENGTH, VECTORS = ("LSTMLargeSorter", "CNNSorter", "PublishedCNNSorter"), 100, 256
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Stopwatch:
    """Sum of the wall time of blocks, with the work of the GPU, and of their CPU time."""

    wall = cpu = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


@torch.inference_mode()
def smile(report: Report) -> None:
    """Report the seconds of table 3.7."""
    with torch.device(DEVICE):
        words, captions = nn.Embedding(WORDS, 620), SRUEncoder(620, 2400, layers=4).eval()
        images = SMILEEncoder(2048, 2400).eval()
    watch, vectors = Stopwatch(), (list[Tensor](), list[Tensor]())
    for start in range(0, IMAGES, BATCH):
        features = torch.randn(min(BATCH, IMAGES - start), REGIONS, 2048, device=DEVICE)
        with watch.running():
            vectors[0].append(
                images(features, features.new_ones(features.shape[:2], dtype=torch.bool))
            )
    for start in range(0, CAPTIONS * IMAGES, BATCH):
        counts = torch.full((min(BATCH, CAPTIONS * IMAGES - start),), FURTHER, device=DEVICE)
        lengths = SHORTEST + torch.poisson(counts).long()
        ids = torch.randint(WORDS, (len(lengths), int(lengths.max())), device=DEVICE)
        with watch.running():
            vectors[1].append(captions(words(ids), lengths))
    folds = split_folds(
        PROTOCOLS["coco_5fold_1k"], torch.arange(IMAGES).repeat_interleave(CAPTIONS), IMAGES
    )
    with watch.running():
        protocol_ranks(folds, torch.cat(vectors[0]), torch.cat(vectors[1]), rerank=True)
    place = "a GPU" if DEVICE == "cuda" else f"{torch.get_num_threads()} threads of a CPU"
    reference = f"{watch.cpu:.0f} CPU s; table 3.7: 45 s, and 266 s of VSRN"
    report.add(f"SMILE on {place}, 5 folds of 1,000 images", watch.wall, "s", reference=reference)


def sorters(report: Report, rounds: int = 3) -> None:
    """Report the time of the LSTM relative to the CNNs, of a training step and of a forward
    pass."""
    scores, seconds = torch.randn(VECTORS, LENGTH, device=DEVICE), dict[str, tuple[float, float]]()
    for name in SORTERS:
        torch.manual_seed(0)
        sorter: nn.Module = build("bifocal.sorters", name, length=LENGTH).to(DEVICE)
        sorter(scores).sum().backward()
        step, forward = Stopwatch(), Stopwatch()
        for _ in range(rounds):
            with step.running():
                sorter(scores).sum().backward()
            with forward.running(), torch.no_grad():
                sorter(scores)
        gpu = DEVICE == "cuda"
        seconds[name] = (step.wall if gpu else step.cpu), (forward.wall if gpu else forward.cpu)
        weights = sum(weight.numel() for weight in sorter.parameters())
        report.add(
            f"{name}, training step",
            seconds[name][0] / rounds,
            "s",
            reference=f"{weights:,} weights",
        )
    for name in SORTERS[1:]:
        step_ratio, forward_ratio = (
            lstm / cnn for lstm, cnn in zip(seconds[SORTERS[0]], seconds[name], strict=True)
        )
        reference = f"forward only: {forward_ratio:.3g}; section 5.3.2: 1.7"
        report.add(f"{name}, speed relative to {SORTERS[0]}", step_ratio, reference=reference)


def main() -> None:
    """Report the times of each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    report = Report("speed.published")
    for name in parser.parse_args().only:
        (smile if name == "smile" else sorters)(report)
    report.write()


if __name__ == "__main__":
    main()
