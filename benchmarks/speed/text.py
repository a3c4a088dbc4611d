"""How fast are SRU, ELMo, tf-idf and Fisher vectors?

    python -m benchmarks run speed.text [--only recurrences] [--data ../shared/data/elmo]

Recurrences are timed in turns and their medians compared: a busy machine slows all of them alike. A
step is a forward and a backward pass. On a GPU, GRU and LSTM are cuDNN's, and SRU has Triton
kernels. There, all are compared in float32 and in TF32, for matrix products and cuDNN alike;
PyTorch's default is TF32 only in cuDNN.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from benchmarks.common import Report, peak_kilobytes, wall_seconds
from bifocal.registry import build
from bifocal.text_encoders.recurrent import sru_recurrence

BATCH, STEPS, WORD_DIM, DIM, LAYERS = 160, 20, 620, 2400, 4
PARTS = ("tf_idf", "elmo", "fisher", "recurrences")
RECURRENCES = ("SRUEncoder", "GRUEncoder", "LSTMEncoder")
WITHOUT_TRITON = "SRUEncoder without Triton"
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
    with torch.device(DEVICE):
        encoder: nn.Module = build(
            "bifocal.text_encoders", name, input_dim=WORD_DIM, dim=DIM, layers=LAYERS, dropout=0.25
        )
    encoder.train()
    values = torch.randn(BATCH, STEPS, WORD_DIM, device=DEVICE)
    lengths = torch.full((BATCH,), STEPS, device=DEVICE)
    return lambda: encoder(values, lengths).sum().backward()


def median_times(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median wall time of each function, timed in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        seconds(step)
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(seconds(step))
    return {name: float(np.median(values)) for name, values in times.items()}


def recurrences(report: Report, rounds: int) -> None:
    """Compare SRU with GRU and LSTM: time in turns, memory on a CPU in separate processes."""
    sizes = f"batch {BATCH}, T {STEPS}, d {DIM}, {LAYERS} layers, {DEVICE}"
    megabytes = {name: step_memory(name) for name in RECURRENCES}
    steps: dict[str, Callable[[], object]] = {name: training_step(name) for name in RECURRENCES}
    if DEVICE == "cpu":
        medians = median_times(steps, rounds)
        report_times(
            report, medians, megabytes, f"{sizes}, {torch.get_num_threads()} threads", "", bar=1.5
        )
        return
    steps[WITHOUT_TRITON] = without_triton(steps["SRUEncoder"])
    print(torch.cuda.get_device_name())
    for tf32, precision in ((False, "float32"), (True, "TF32")):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        medians = median_times(steps, rounds)
        report_times(
            report, medians, megabytes, f"{sizes}, {precision}", f" on a GPU, {precision}", bar=3.0
        )
        gain = medians[WITHOUT_TRITON] / medians["SRUEncoder"]
        report.add(f"SRU on a GPU, {precision}, speed relative to SRU without Triton", gain)


def report_times(
    report: Report,
    medians: dict[str, float],
    megabytes: dict[str, float],
    setting: str,
    place: str,
    bar: float,
) -> None:
    """Report the time and memory of each recurrence, and the speed of SRU relative to GRU and
    LSTM."""
    for name in medians:
        reference = f"{megabytes[name]:.0f} MB" if name in megabytes else ""
        report.add(f"{name}, {setting}", medians[name], "s / step", reference=reference)
    report.add(
        f"SRU{place}, speed relative to GRU",
        medians["GRUEncoder"] / medians["SRUEncoder"],
        at_least=bar,
    )
    report.add(
        f"SRU{place}, speed relative to LSTM", medians["LSTMEncoder"] / medians["SRUEncoder"]
    )


def without_triton(step: Callable[[], object]) -> Callable[[], object]:
    """Return ``step`` with the recurrence of SRU in PyTorch, one operation per time step."""
    backend = "bifocal.text_encoders.recurrent.sru._backend"
    return patch(backend, lambda tensor: sru_recurrence)(step)


def step_memory(name: str) -> float:
    """Return the MB of a training step; on a CPU, in a process of its own."""
    if DEVICE == "cuda":
        return extra_memory(name)
    command = [sys.executable, "-m", "benchmarks.speed.text", "--memory", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def extra_memory(name: str) -> float:
    """Return the MB of a training step, with weights and gradients, without imports and earlier
    tensors."""
    if DEVICE == "cuda":
        earlier = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        training_step(name)()
        return (torch.cuda.max_memory_allocated() - earlier) / 2**20
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
    from bifocal.text.vectorizers import TFIDF

    texts = captions(count)
    vectorizer = TFIDF()

    def run() -> None:
        vectorizer.fit(texts, seed=0)
        for start in range(0, count, 1024):
            vectorizer.transform(texts[start : start + 1024])

    report.add(f"tf-idf, {count} captions, fit and vectorize", seconds(run), "s", at_most=10)


def elmo(report: Report, folder: Path) -> None:
    """Compare ELMo with torch's projected LSTM, which has neither clipping nor a character
    encoder."""
    from bifocal.text import Elmo
    from bifocal.text.elmo import ElmoOptions

    models = {"published size": Elmo(ElmoOptions()).eval()}
    if folder.is_dir():
        models["test model"] = Elmo.load(folder / "options.json", folder / "lm_weights.hdf5")
    for name, model in models.items():
        options = model.options
        peer = nn.LSTM(
            options.projection_dim,
            options.lstm_dim,
            num_layers=2,
            proj_size=options.projection_dim,
            bidirectional=True,
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
    from bifocal.text.vectorizers import FisherVectors

    texts = captions(2 * count)
    vectorizer = FisherVectors(components=count, epochs=1, iterations=3)
    report.add(
        f"Fisher vectors, fit on {len(texts)} captions",
        seconds(lambda: vectorizer.fit(texts, seed=0)),
        "s",
    )
    ids = vectorizer.word_vectors.vocabulary.encode_captions(texts[:2048]).values
    alone = seconds(
        lambda: [vectorizer.fisher(ids[start : start + 512]) for start in range(0, 2048, 512)]
    )
    reduced = seconds(lambda: vectorizer.transform(texts[:2048]))
    report.add("Fisher vectors, 18,000 values", 2048 / alone, "captions / s")
    report.add(f"Fisher vectors, PCA to {vectorizer.format.dim}", 2048 / reduced, "captions / s")


def main() -> None:
    """Report the speed of every text representation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data/elmo"), help="folder of a published ELMo"
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5, help="training steps of each recurrence")
    parser.add_argument(
        "--memory", choices=RECURRENCES, help="only print the memory of one training step"
    )
    arguments = parser.parse_args()
    if arguments.memory:
        print(extra_memory(arguments.memory))
    else:
        results = Report("speed.text")
        parts: dict[str, Callable[[], None]] = {
            "tf_idf": lambda: tf_idf(results, 100_000),
            "elmo": lambda: elmo(results, arguments.data),
            "fisher": lambda: fisher(results, 1000),
            "recurrences": lambda: recurrences(results, arguments.rounds),
        }
        for name in arguments.only:
            parts[name]()
        results.write()


if __name__ == "__main__":
    main()
