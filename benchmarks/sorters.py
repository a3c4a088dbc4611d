"""Which sorter is exact, fast, robust, honest and useful?

python benchmarks/sorters.py [accuracy] [time] [memory] [robustness] [adversary] [use]     (all of them by default)

One thread, CPU seconds. The two learned sorters are pretrained here for 40 CPU seconds each at n = 32 (the thesis:
hundreds of epochs of 100,000 vectors of 100 scores, on a GPU), so their errors say what a CPU reaches, not what they
can. Every figure with a bar ends in ok or MISS.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, normalize

from bifocal.losses import (
    HardestTripletLoss,
    MeanAveragePrecisionLoss,
    RecallLoss,
    SpearmanLoss,
    TripletLoss,
)
from bifocal.scores import Scores
from bifocal.sorters import (
    BifocalSorter,
    CNNSorter,
    LaplaceSorter,
    LSTMSorter,
    NeuralSorter,
    PairwiseSorter,
    PermutahedronSorter,
    SoftSorter,
    exact_ranks,
    held_out_scores,
    play_adversary,
    pretrain,
    rank_l1,
)

LEARNED_LENGTH = 32
LEARNING_SECONDS = 40
OURS = "BifocalSorter"
HANDCRAFTED: dict[str, nn.Module] = {
    OURS: BifocalSorter(),
    "BifocalSorter, soft": BifocalSorter(exact=False),
    "LaplaceSorter": LaplaceSorter(),
    "PermutahedronSorter": PermutahedronSorter(),
    "PermutahedronSorter, 0.01": PermutahedronSorter(0.01),
    "PairwiseSorter": PairwiseSorter(),
    "PairwiseSorter, adaptive": PairwiseSorter(adaptive=True),
    "NeuralSorter": NeuralSorter(),
    "SoftSorter": SoftSorter(),
}
QUADRATIC = ("PairwiseSorter", "PairwiseSorter, adaptive", "NeuralSorter", "SoftSorter")


def verdict(holds: bool) -> str:
    return "ok" if holds else "MISS"


def learned() -> dict[str, nn.Module]:
    """The two learned sorters, each after LEARNING_SECONDS."""
    found: dict[str, nn.Module] = {}
    for sorter, rate in ((LSTMSorter(LEARNED_LENGTH, hidden=32, layers=1), 0.01), (CNNSorter(LEARNED_LENGTH), 0.003)):
        start, epochs = time.thread_time(), 0
        with tempfile.TemporaryDirectory() as folder:
            training = pretrain(
                sorter,
                length=LEARNED_LENGTH,
                batch_size=128,
                learning_rate=rate,
                halve_every=6,
                vectors_per_epoch=10_000,
                epochs=1000,
                patience=1000,
                tolerance=0.0,
                seed=1,
                checkpoints=Path(folder),
            )
            for _ in training:
                epochs += 1
                if time.thread_time() - start > LEARNING_SECONDS:
                    break
        print(f"{type(sorter).__name__}: {epochs} epochs of 10,000 vectors of {LEARNED_LENGTH}")
        found[type(sorter).__name__] = sorter.eval()
    return found


def accuracy(sorters: dict[str, nn.Module]) -> None:
    print(
        "\nL1 error of ranks divided by n, 10,000 held-out vectors; table 5.1: pairwise 0.0350, CNN 0.0120, LSTM 0.0033"
    )
    for name, sorter in sorters.items():
        length = getattr(sorter, "length", 100)
        error = rank_l1(sorter, held_out_scores(length, seed=0))
        bar = f"   at most 0.0005  {verdict(error <= 0.0005)}" if name == OURS else ""
        print(f"{name:<28} n = {length:<4} {error:8.4f}{bar}")


def milliseconds(step: Callable[[], object], repeats: int = 15) -> float:
    """Median CPU time after a warm start."""
    step()
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        step()
        times.append(time.thread_time() - start)
    return 1e3 * float(np.median(times))


def timing() -> None:
    for batch, n in ((512, 100), (512, 1000), (64, 10_000)):
        scores, weights = torch.randn(batch, n), torch.randn(batch, n)
        leaf = scores.clone().requires_grad_()

        def step(sorter: nn.Module, leaf: Tensor = leaf, weights: Tensor = weights) -> None:
            leaf.grad = None
            (sorter(leaf) * weights).sum().backward()

        floor = milliseconds(lambda scores=scores: scores.sort(dim=-1))
        print(f"\nforward + backward, batch {batch}, n = {n}; torch.sort alone {floor:.2f} ms")
        found: dict[str, float] = {}
        for name, sorter in HANDCRAFTED.items():
            if name in QUADRATIC and batch * n * n > 1e8:
                print(f"{name:<28} {'-':>9}     needs {batch * n * n * 4 / 1e9:,.0f} GB a matrix")
                continue
            found[name] = milliseconds(lambda sorter=sorter: step(sorter), 3 if name in QUADRATIC else 15)
            ratio = found[name] / floor
            bar = f"   at most 3  {verdict(ratio <= 3)}" if name == OURS else ""
            print(f"{name:<28} {found[name]:9.2f} ms  {ratio:6.2f} sorts{bar}")
        peers = {name: value for name, value in found.items() if name in (*QUADRATIC, "PermutahedronSorter")}
        fastest = min(peers, key=lambda name: peers[name])
        print(
            f"ours {found[OURS]:.2f} ms, fastest of permutahedron and pairwise operators ({fastest}) "
            f"{peers[fastest]:.2f} ms  {verdict(found[OURS] < peers[fastest])}"
        )


def memory() -> None:
    print("\npeak memory of forward + backward of one row, in a process of its own")
    sizes = (2_000_000, 4_000_000, 8_000_000)
    peaks = [int(subprocess.check_output([sys.executable, __file__, "--peak", str(n)])) for n in sizes]
    for n, peak in zip(sizes, peaks, strict=True):
        print(f"n = {n:>9,} {peak / n:6.0f} bytes a score")
    growth = (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])
    print(f"4 to 8 million over 2 to 4 million: {growth:.2f}, linear 2, bar 2.2  {verdict(growth <= 2.2)}")


def peak_bytes(n: int) -> int:
    scores, weights = torch.randn(1, n, requires_grad=True), torch.randn(1, n)
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten, that of the imports too
    (BifocalSorter()(scores) * weights).sum().backward()
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(peak.split()[1]) - before


def robustness(sorters: dict[str, nn.Module]) -> None:
    def shifts(n: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        base = torch.rand(200, n, generator=generator) * 2 - 1
        cauchy = torch.tan(1.5 * base)
        return {
            "x 0.01": 0.01 * base,
            "x 100": 100 * base,
            "+ 10": base + 10,
            "heavy": cauchy**3,
            "clusters": base.sign() + 0.001 * torch.rand(200, n, generator=generator),
            "ties": (4 * base).round(),
        }

    for n in (100, LEARNED_LENGTH, 2, 10, 1000):
        print(f"\nout of distribution, n = {n}: L1 of ranks divided by n (dead: some row has no gradient; NaN)")
        print(f"{'':<28}" + "".join(f"{kind:>12}" for kind in shifts(n)))
        for name, sorter in sorters.items():
            if getattr(sorter, "length", n) != n:
                continue
            cells, alive, exact = [], True, True
            for scores in shifts(n).values():
                leaf = scores.clone().requires_grad_()
                ranks = sorter(leaf)
                weights = torch.randn(ranks.shape, generator=torch.Generator().manual_seed(1))
                (ranks * weights).sum().backward()
                assert leaf.grad is not None
                finite = bool(ranks.isfinite().all() and leaf.grad.isfinite().all())
                dead = not bool((leaf.grad != 0).any(dim=1).all())
                error = float((ranks.detach() - exact_ranks(scores)).abs().mean()) / n
                cells.append("NaN" if not finite else f"{error:.4f}" + (" dead" if dead else ""))
                alive, exact = alive and finite and not dead, exact and error <= 0.0005
            bar = f"  {verdict(alive and exact)}" if name == OURS else ""
            print(f"{name:<28}" + "".join(f"{cell:>12}" for cell in cells) + bar)


def adversary(sorters: dict[str, nn.Module]) -> None:
    print("\nadversary: mean rank of the positive divided by n, before -> after 400 steps, as said and as it is")
    for name, sorter in sorters.items():
        before, after = play_adversary(sorter, length=LEARNED_LENGTH, rows=128, steps=400, learning_rate=0.02, seed=0)
        # Tricked: what the sorter says has fallen by a tenth more than the truth.
        tricked = (before.said - after.said) > (before.true - after.true) + 0.1
        bar = f"   {verdict(not tricked)}" if name == OURS else ""
        print(
            f"{name:<28} said {before.said:6.3f} -> {after.said:6.3f}   true {before.true:6.3f} -> {after.true:6.3f}"
            f"   {'tricked' if tricked else 'honest'}{bar}"
        )


Loss = Callable[[Scores, Tensor], Tensor]
RATES = (0.001, 0.003, 0.01, 0.03)
SEEDS = range(5)


def best_of_rates(task: Callable[[Loss, float, int], float], loss: Callable[[], Loss]) -> tuple[float, float, float]:
    """Mean and deviation over SEEDS at the step size that is best on two other seeds, and CPU seconds a run."""
    rate = max(RATES, key=lambda rate: sum(task(loss(), rate, 100 + seed) for seed in range(2)))
    start = time.thread_time()
    values = [100 * task(loss(), rate, seed) for seed in SEEDS]
    return float(np.mean(values)), float(np.std(values, ddof=1)), (time.thread_time() - start) / len(SEEDS)


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


def fit(model: nn.Module, rate: float, steps: int, batch_loss: Callable[[], Tensor]) -> None:
    adam = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        adam.zero_grad()
        batch_loss().backward()
        adam.step()


def retrieval(loss: Loss, rate: float, seed: int, steps: int = 250, batch: int = 100) -> float:
    """R@1, mean of both directions, of two networks on 1,000 new pairs of noisy views of 12 hidden numbers."""
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(12, 48, generator=generator) * 0.43 for _ in range(2)]

    def pairs(count: int) -> list[Tensor]:
        hidden = torch.randn(count, 12, generator=generator)
        return [torch.tanh(hidden @ view) + 0.25 * torch.randn(count, 48, generator=generator) for view in views]

    training, test = pairs(3000), pairs(1000)
    torch.manual_seed(seed)
    branches = nn.ModuleList([network(48, 24), network(48, 24)])
    matches = torch.eye(batch, dtype=torch.bool)

    def cosines(images: Tensor, captions: Tensor) -> Tensor:
        return normalize(branches[0](images), dim=1) @ normalize(branches[1](captions), dim=1).T

    def batch_loss() -> Tensor:
        rows = torch.randint(3000, (batch,), generator=generator)
        return loss(Scores(cosines(training[0][rows], training[1][rows])), matches)

    fit(branches, rate, steps, batch_loss)
    with torch.no_grad():
        scores = cosines(*test)
    return sum(float((exact_ranks(side).diagonal() == 0).float().mean()) for side in (scores, scores.T)) / 2


def ordinal(loss: Loss, rate: float, seed: int, steps: int = 250, batch: int = 100) -> float:
    """Spearman correlation on 2,000 new samples of a skewed target under heavy-tailed noise."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(32, 2, generator=generator) / 32**0.5

    def samples(count: int) -> tuple[Tensor, Tensor]:
        features = torch.randn(count, 32, generator=generator)
        signal = (features @ direction).sin().sum(dim=1)
        noise = torch.tan(1.4 * (torch.rand(count, generator=generator) * 2 - 1))
        return features, torch.exp(2 * signal) + 0.3 * noise

    (features, targets), (test, truth) = samples(2000), samples(2000)
    torch.manual_seed(seed)
    model = network(32, 1)

    def batch_loss() -> Tensor:
        rows = torch.randint(2000, (batch,), generator=generator)
        return loss(Scores(model(features[rows]).T), targets[rows][None])

    fit(model, rate, steps, batch_loss)
    with torch.no_grad():
        ranks = torch.stack([exact_ranks(model(test)[:, 0]), exact_ranks(truth)])
    return float(torch.corrcoef(ranks)[0, 1])


def labels(loss: Loss, rate: float, seed: int, steps: int = 250, batch: int = 100) -> float:
    """Mean average precision on 2,000 new samples of ten rare labels."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(32, 10, generator=generator) / 32**0.5

    def samples(count: int) -> tuple[Tensor, Tensor]:
        features = torch.randn(count, 32, generator=generator)
        strength = features @ directions + (2 * features @ directions.flip(1)).sin()
        strength += 0.5 * torch.randn(count, 10, generator=generator)
        return features, strength > 2

    (features, truth), (test, test_truth) = samples(3000), samples(2000)
    torch.manual_seed(seed)
    model = network(32, 10)

    def batch_loss() -> Tensor:
        rows = torch.randint(3000, (batch,), generator=generator)
        return loss(Scores(model(features[rows]).T), truth[rows].T)

    fit(model, rate, steps, batch_loss)
    precisions = []
    with torch.no_grad():
        for scores, truth_of_class in zip(model(test).T, test_truth.T, strict=True):
            hits = truth_of_class[scores.argsort(descending=True)].double()
            precisions.append(float((hits.cumsum(0) / torch.arange(1, 2001) * hits).sum() / hits.sum()))
    return float(np.mean(precisions))


def contrastive(scores: Scores, matches: Tensor) -> Tensor:
    truth = torch.arange(len(matches))
    return cross_entropy(14 * scores.cross, truth) + cross_entropy(14 * scores.cross.T, truth)


def regression_to_ranks(scores: Scores, matches: Tensor) -> Tensor:
    return mse_loss(scores.cross, 0.5 - exact_ranks(matches) / matches.shape[1])


def regression(scores: Scores, matches: Tensor) -> Tensor:
    return mse_loss(scores.cross, matches)


def soft_margin(scores: Scores, matches: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(scores.cross, matches.float())


def use() -> None:
    def soft() -> nn.Module:
        return BifocalSorter(exact=False)

    tables: dict[str, tuple[Callable[[Loss, float, int], float], dict[str, Callable[[], Loss]], tuple[str, str]]] = {
        "retrieval, R@1, percent": (
            retrieval,
            {
                "ours: recall": lambda: RecallLoss(surrogate="recall"),
                "ours: rank (5.13)": lambda: RecallLoss(surrogate="rank"),
                "ours: triplet (5.12)": lambda: RecallLoss(),
                "ours, soft: recall": lambda: RecallLoss(soft(), "recall"),
                "ours, soft: log_rank": lambda: RecallLoss(soft(), "log_rank"),
                "ours, soft: triplet (5.12)": lambda: RecallLoss(soft()),
                "pairwise: log_rank": lambda: RecallLoss(PairwiseSorter(), "log_rank"),
                "Laplace: log_rank": lambda: RecallLoss(LaplaceSorter(), "log_rank"),
                "hardest triplet": HardestTripletLoss,
                "sum of triplets": TripletLoss,
                "contrastive cross-entropy": lambda: contrastive,
            },
            ("ours: recall", "hardest triplet"),
        ),
        "ordinal regression, Spearman, percent": (
            ordinal,
            {
                "ours: SpearmanLoss": SpearmanLoss,
                "ours, soft: SpearmanLoss": lambda: SpearmanLoss(soft()),
                "pairwise: SpearmanLoss": lambda: SpearmanLoss(PairwiseSorter()),
                "regression to ranks": lambda: regression_to_ranks,
                "regression": lambda: regression,
            },
            ("ours, soft: SpearmanLoss", "regression to ranks"),
        ),
        "multi-label classification, mAP, percent": (
            labels,
            {
                "ours: mAP (5.9)": MeanAveragePrecisionLoss,
                "ours, soft: mAP (5.9)": lambda: MeanAveragePrecisionLoss(soft()),
                "ours: mAP + soft margin": lambda: MeanAveragePrecisionLoss(alignment_weight=1.0),
                "pairwise: mAP (5.9)": lambda: MeanAveragePrecisionLoss(PairwiseSorter()),
                "cross-entropy": lambda: soft_margin,
            },
            ("ours: mAP (5.9)", "cross-entropy"),
        ),
    }
    for title, (task, losses, (ours, floor)) in tables.items():
        print(f"\n{title}: mean and deviation of {len(SEEDS)} seeds, step size tuned for each on two others")
        results = {name: best_of_rates(task, loss) for name, loss in losses.items()}
        for name, (mean, deviation, seconds) in results.items():
            print(f"{name:<28} {mean:6.2f} +- {deviation:.2f}   {seconds:6.2f} s a run")
        ahead = task is retrieval
        bar = results[floor][0] - (0 if ahead else results[floor][1])
        wanted = f"{'above' if ahead else 'at least, within its spread,'} {floor} {results[floor][0]:.2f}"
        print(f"{ours} {results[ours][0]:.2f}, {wanted}  {verdict(results[ours][0] > bar)}")


def main() -> None:
    questions = ("accuracy", "time", "memory", "robustness", "adversary", "use")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", help=", ".join(questions))
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.peak:
        print(peak_bytes(given.peak))
        return
    unknown = set(given.questions) - set(questions)
    if unknown:
        parser.error(f"unknown {sorted(unknown)}; choose from {', '.join(questions)}")
    wanted = given.questions or questions
    sorters = HANDCRAFTED | (learned() if {"accuracy", "robustness", "adversary"} & set(wanted) else {})
    if "accuracy" in wanted:
        accuracy(sorters)
    if "time" in wanted:
        timing()
    if "memory" in wanted:
        memory()
    if "robustness" in wanted:
        robustness(sorters)
    if "adversary" in wanted:
        adversary(sorters)
    if "use" in wanted:
        use()


if __name__ == "__main__":
    main()
