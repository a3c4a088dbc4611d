"""How fast are SRU, ELMo, tf-idf and Fisher vectors?

    python -m benchmarks run speed.text [--data ../shared/data/elmo]

Recurrences are timed in turns and their medians compared: a busy machine slows all of them alike.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.common import Report, peak_kilobytes, wall_seconds
from bifocal.registry import build
from bifocal.text import Elmo
from bifocal.text.elmo.format import ElmoOptions
from bifocal.text.vectorizers import TFIDF, FisherVectors

BATCH, STEPS, WORD_DIM, DIM, LAYERS = 160, 20, 620, 2400, 4
RECURRENCES = ("SRUEncoder", "GRUEncoder", "LSTMEncoder")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def seconds(function: Callable[[], object]) -> float:
    """Return the wall time of one call, and of its work on the GPU."""

    def complete() -> None:
        function()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return wall_seconds(complete)


def training_step(name: str) -> Callable[[], None]:
    """Return a function that runs forward and backward of a text encoder, in the sizes of BEAN."""
    torch.manual_seed(0)
    encoder: nn.Module = build("bifocal.text_encoders", name, input_dim=WORD_DIM, dim=DIM, layers=LAYERS, dropout=0.25)
    encoder.to(DEVICE).train()
    values = torch.randn(BATCH, STEPS, WORD_DIM, device=DEVICE)
    lengths = torch.full((BATCH,), STEPS, device=DEVICE)
    return lambda: encoder(values, lengths).sum().backward()


def recurrences(report: Report, rounds: int) -> None:
    """Compare SRU with GRU and LSTM: time in turns, memory in separate processes."""
    steps = {name: training_step(name) for name in RECURRENCES}
    times: dict[str, list[float]] = {name: [] for name in RECURRENCES}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(seconds(step))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    setting = f"batch {BATCH}, T {STEPS}, d {DIM}, {LAYERS} layers, {DEVICE}, {torch.get_num_threads()} threads"
    for name in RECURRENCES:
        command = [sys.executable, "-m", "benchmarks.speed.text", "--memory", name]
        megabytes = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        report.add(f"{name}, {setting}", medians[name], "s / step", reference=f"{megabytes:.0f} MB")
    bar = 3.0 if DEVICE == "cuda" else 1.5
    report.add("SRU, speed relative to GRU", medians["GRUEncoder"] / medians["SRUEncoder"], at_least=bar)
    report.add("SRU, speed relative to LSTM", medians["LSTMEncoder"] / medians["SRUEncoder"])


def extra_memory(name: str) -> float:
    """Return the MB of a training step without the imports, with weights and gradients."""
    if DEVICE == "cuda":
        training_step(name)()
        return torch.cuda.max_memory_allocated() / 2**20
    before = peak_kilobytes()
    training_step(name)()
    return (peak_kilobytes() - before) / 2**10


def captions(count: int, words: int = 10_000, length: int = 11) -> list[str]:
    """Return sentences of random words with Zipf frequencies."""
    generator = np.random.default_rng(0)
    shares = 1 / np.arange(1, words + 1)
    ids = generator.choice(words, size=(count, length), p=shares / shares.sum())
    letters = np.array(list("bcdfghklmnprstvw"))
    names = ["".join(letters[generator.integers(16, size=6)]) for _ in range(words)]
    return [" ".join(names[index] for index in row) for row in ids]


def tf_idf(report: Report, count: int) -> None:
    """Time fitting and vectorizing."""
    texts = captions(count)
    vectorizer = TFIDF()

    def run() -> None:
        vectorizer.fit(texts, seed=0)
        for start in range(0, count, 1024):
            vectorizer.transform(texts[start : start + 1024])

    report.add(f"tf-idf, {count} captions, fit and vectorize", seconds(run), "s", at_most=10)


def elmo(report: Report, folder: Path) -> None:
    """Compare ELMo with torch's projected LSTM, which has neither clipping nor a character encoder."""
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
                elmo_seconds = seconds(partial(model.layers, sentences, batch))
                peer_rate = batch / seconds(partial(peer, inputs))
            label, rate = f"ELMo, {name}, batch {batch}", batch / elmo_seconds
            report.add(label, rate, "sentences / s", reference=f"torch LSTM {peer_rate:.4g}")


def fisher(report: Report, count: int) -> None:
    """Time Fisher vectors, HGLMM of 30 centers on 300-d words, before and after PCA."""
    texts = captions(2 * count)
    vectorizer = FisherVectors(components=count, epochs=1, iterations=3)
    report.add(f"Fisher vectors, fit on {len(texts)} captions", seconds(lambda: vectorizer.fit(texts, seed=0)), "s")
    ids = vectorizer.word_vectors.encode(texts[:2048]).values
    alone = seconds(lambda: [vectorizer.fisher(ids[start : start + 512]) for start in range(0, 2048, 512)])
    reduced = seconds(lambda: vectorizer.transform(texts[:2048]))
    report.add("Fisher vectors, 18,000 values", 2048 / alone, "captions / s")
    report.add(f"Fisher vectors, PCA to {vectorizer.format.dim}", 2048 / reduced, "captions / s")


def main() -> None:
    """Report the speed of every text representation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/elmo"), help="folder of a published ELMo")
    parser.add_argument("--rounds", type=int, default=5, help="training steps of each recurrence")
    parser.add_argument("--memory", choices=RECURRENCES, help="only print the memory of one training step")
    arguments = parser.parse_args()
    if arguments.memory:
        print(extra_memory(arguments.memory))
    else:
        results = Report("speed.text")
        tf_idf(results, 100_000)
        elmo(results, arguments.data)
        fisher(results, 1000)
        recurrences(results, arguments.rounds)
        results.write()


if __name__ == "__main__":
    main()
