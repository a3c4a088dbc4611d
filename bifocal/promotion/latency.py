"""Latency of two exported models in the same process, on the same inputs."""

import time
from collections.abc import Callable

import numpy as np

from bifocal.onnx.encoders import Encoders

REPETITIONS, WARM_UP = 20, 3
SENTENCE = "a dog runs on the grass beside a child in a red coat"


def latency_ratios(current: Encoders, reference: Encoders, image: bytes | None) -> dict[str, float]:
    """Return the median time per input, current over reference; the models take turns, so load concerns both."""
    ratios = {
        "text": _ratio(*(lambda model=model: model.encode_sentences([SENTENCE]) for model in (current, reference)))
    }
    if image is not None and all("image" in model.inputs for model in (current, reference)):
        ratios["image"] = _ratio(*(lambda model=model: model.encode_images([image]) for model in (current, reference)))
    return ratios


def _ratio(current: Callable[[], object], reference: Callable[[], object]) -> float:
    seconds: tuple[list[float], list[float]] = ([], [])
    for repetition in range(WARM_UP + REPETITIONS):
        order = (0, 1) if repetition % 2 else (1, 0)
        for side in order:
            start = time.perf_counter()
            (current, reference)[side]()
            seconds[side].append(time.perf_counter() - start)
    medians = [float(np.median(values[WARM_UP:])) for values in seconds]
    return medians[0] / medians[1]
