"""How does recall in both directions compare with torchmetrics, ir-measures and NumPy?

    make peers

1,000 and 5,000 images with five captions each, from their scores: R@1, R@5, R@10 and the median
rank, on one core. The packages rank one direction, captions for images; ours is timed in both. The
values are compared first. Only NumPy's sort is measured with 5,000 images: the packages take
minutes.
"""

import ir_measures
import numpy as np
import torch
from ir_measures import Success
from torchmetrics.retrieval import RetrievalHitRate

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from bifocal.metrics import score_ranks, summarize

FEW, MANY, PER_IMAGE, KS = 1000, 5000, 5, (1, 5, 10)


def compare_recall(report: Report, count: int) -> None:
    """Compare the metrics of ``count`` images."""
    image_of_caption = torch.arange(count).repeat_interleave(PER_IMAGE)
    matches = torch.arange(count)[:, None] == image_of_caption
    scores = torch.randn(count, PER_IMAGE * count, generator=torch.Generator().manual_seed(0)).add_(
        matches, alpha=3.0
    )
    array, truth = scores.numpy(), matches.numpy()
    rows = torch.arange(count)[:, None].expand(count, PER_IMAGE * count)

    def ours() -> dict[str, float]:
        found = score_ranks(
            lambda images, columns: scores[images][:, columns], image_of_caption, images=count
        )
        values: dict[str, float] = summarize(found, KS)["caption_retrieval"]
        return values

    def by_torchmetrics() -> list[float]:
        return [
            100
            * float(
                RetrievalHitRate(top_k=k)(
                    scores.flatten(), matches.flatten(), indexes=rows.flatten()
                )
            )
            for k in KS
        ]

    def by_numpy() -> list[float]:
        order = np.argsort(-array, axis=1)
        first = np.take_along_axis(truth, order, axis=1).argmax(axis=1)
        return [100 * float((first < k).mean()) for k in KS]

    def by_ir_measures() -> list[float]:
        run = {
            str(row): {str(c): float(s) for c, s in enumerate(line)}
            for row, line in enumerate(array)
        }
        relevant = {
            str(row): {str(c): 1 for c in np.flatnonzero(line)} for row, line in enumerate(truth)
        }
        found = ir_measures.calc_aggregate([Success @ k for k in KS], relevant, run)
        return [100 * found[Success @ k] for k in KS]

    expected, work = [ours()[f"R@{k}"] for k in KS], f"recall, {count:,} x {PER_IMAGE * count:,}"
    packages = (
        {"torchmetrics": by_torchmetrics, "ir-measures": by_ir_measures} if count == FEW else {}
    )
    for name, theirs in {**packages, "numpy argsort": by_numpy}.items():
        assert np.allclose(theirs(), expected, atol=1e-3), (name, theirs(), expected)
        compare(report, work, name, ours, theirs)


def main() -> None:
    """Compare the metrics."""
    torch.set_num_threads(1)
    report = Report("peers.recall")
    for count in (FEW, MANY):
        compare_recall(report, count)
    write(report)


if __name__ == "__main__":
    main()
