"""How fast are the text representations?

python -m benchmarks.speed.text [--data ../shared/data/elmo]

Recurrences are timed in turns, and the median is taken: a busy machine slows all of them alike. Their bar, and the one
of tf-idf, are those of issue 3; figures without a bar stand beside a peer of the same run.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bifocal.registry import build
from bifocal.text import Elmo
from bifocal.text.elmo.format import ElmoOptions
from bifocal.text.vectorizers import TFIDF, FisherVectors

BATCH, STEPS, WORD_DIM, DIM, LAYERS = 160, 20, 620, 2400, 4
RECURRENCES = ("SRUEncoder", "GRUEncoder", "LSTMEncoder")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def report(what: str, value: float, unit: str, bar: float | None = None, at_most: bool = False, peer: str = "") -> None:
    """One line: the figure, its bar or its peer, ok or MISS."""
    end = ""
    if bar is not None:
        ok = value <= bar if at_most else value >= bar
        end = f"bar {'<=' if at_most else '>='} {bar:g}  {'ok' if ok else 'MISS'}"
    print(f"{what:<58} {value:10.4g} {unit:<14} {peer}  {end}".rstrip(), flush=True)


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def training_step(name: str) -> Callable[[], None]:
    """Forward and backward of a text encoder at the size of BEAN."""
    torch.manual_seed(0)
    encoder: nn.Module = build("bifocal.text_encoders", name, input_dim=WORD_DIM, dim=DIM, layers=LAYERS, dropout=0.25)
    encoder.to(DEVICE).train()
    values = torch.randn(BATCH, STEPS, WORD_DIM, device=DEVICE)
    lengths = torch.full((BATCH,), STEPS, device=DEVICE)
    return lambda: encoder(values, lengths).sum().backward()


def recurrences(rounds: int) -> None:
    """SRU beside GRU and LSTM: time in turns, memory each in a process of its own."""
    steps = {name: training_step(name) for name in RECURRENCES}
    times: dict[str, list[float]] = {name: [] for name in RECURRENCES}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(seconds(step))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    what = f"batch {BATCH}, T {STEPS}, d {DIM}, {LAYERS} layers, {DEVICE}, {torch.get_num_threads()} threads"
    for name in RECURRENCES:
        command = [sys.executable, "-m", "benchmarks.speed.text", "--memory", name]
        megabytes = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        report(f"{name}, {what}", medians[name], "s / step", peer=f"{megabytes:.0f} MB extra")
    bar = 3.0 if DEVICE == "cuda" else 1.5
    report("SRU, times as fast as GRU", medians["GRUEncoder"] / medians["SRUEncoder"], "x", bar)
    report("SRU, times as fast as LSTM", medians["LSTMEncoder"] / medians["SRUEncoder"], "x")


def extra_memory(name: str) -> float:
    """MB that a training step takes beyond the imports, weights and gradients included."""
    if DEVICE == "cuda":
        training_step(name)()
        return torch.cuda.max_memory_allocated() / 2**20
    before = peak_kilobytes()
    training_step(name)()
    return (peak_kilobytes() - before) / 2**10


def peak_kilobytes() -> int:
    """The greatest resident memory of this process so far."""
    # Not getrusage: its maximum is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def captions(count: int, words: int = 10_000, length: int = 11) -> list[str]:
    """Sentences of random words, as frequent as Zipf has them."""
    generator = np.random.default_rng(0)
    shares = 1 / np.arange(1, words + 1)
    ids = generator.choice(words, size=(count, length), p=shares / shares.sum())
    letters = np.array(list("bcdfghklmnprstvw"))
    names = ["".join(letters[generator.integers(16, size=6)]) for _ in range(words)]
    return [" ".join(names[index] for index in row) for row in ids]


def tf_idf(count: int) -> None:
    """Fit and vectorize."""
    texts = captions(count)
    vectorizer = TFIDF()

    def run() -> None:
        vectorizer.fit(texts, seed=0)
        for start in range(0, count, 1024):
            vectorizer.transform(texts[start : start + 1024])

    report(f"tf-idf, {count} captions, fit and vectorize", seconds(run), "s", bar=10, at_most=True)


def elmo(folder: Path) -> None:
    """Sentences per second; the peer is torch's own projected LSTM, which has no clips, without the letters."""
    models = {"published size": Elmo(ElmoOptions()).eval()}
    if folder.is_dir():
        models["test model"] = Elmo.load(folder / "options.json", folder / "lm_weights.hdf5")
    for name, model in models.items():
        options = model.options
        peer = nn.LSTM(
            options.projection_dim, options.lstm_dim, num_layers=2, proj_size=options.projection_dim, bidirectional=True
        ).eval()
        for batch in (1, 32, 256):
            sentences = [text.split() for text in captions(batch)]
            inputs = torch.randn(13, batch, options.projection_dim)
            with torch.inference_mode():
                model.layers(sentences[:1])
                peer(inputs[:, :1])
                own = seconds(partial(model.layers, sentences, batch))
                its = seconds(partial(peer, inputs))
            report(f"ELMo, {name}, batch {batch}", batch / own, "sentences / s", peer=f"peer {batch / its:.4g}")


def fisher(count: int) -> None:
    """Fisher vectors per second, HGLMM of 30 centers on 300-d words, before PCA and after."""
    texts = captions(2 * count)
    vectorizer = FisherVectors(components=count, epochs=1, iterations=3)
    report(f"Fisher vectors, fit on {len(texts)} captions", seconds(lambda: vectorizer.fit(texts, seed=0)), "s")
    ids = vectorizer.word_vectors.encode(texts[:2048]).values
    alone = seconds(lambda: [vectorizer.fisher(ids[start : start + 512]) for start in range(0, 2048, 512)])
    reduced = seconds(lambda: vectorizer.transform(texts[:2048]))
    report("Fisher vectors, 18,000 numbers", 2048 / alone, "captions / s")
    report(f"Fisher vectors, PCA to {vectorizer.format.dim}", 2048 / reduced, "captions / s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/elmo"), help="a published ELMo")
    parser.add_argument("--rounds", type=int, default=5, help="training steps of each recurrence")
    parser.add_argument("--memory", choices=RECURRENCES, help="print the memory of one training step, and end")
    arguments = parser.parse_args()
    if arguments.memory:
        print(extra_memory(arguments.memory))
    else:
        tf_idf(100_000)
        elmo(arguments.data)
        fisher(1000)
        recurrences(arguments.rounds)
