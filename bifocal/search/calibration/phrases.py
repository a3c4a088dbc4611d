"""Presence of a phrase in an image, by the pointing head and the trained model together."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.draws import drawn
from bifocal.durable import write_json
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import read_json
from bifocal.onnx.pointing.head import DESCRIPTION, FOLDER, PointingHead, presence_score
from bifocal.onnx.pointing.phrases import split_phrases
from bifocal.onnx.text.captions import tokenize
from bifocal.progress import log_line, track
from bifocal.search.calibration.logistic import fit_logistic

MIN_IMAGES, MAX_IMAGES = 20, 40
"""Images of the split val whose phrases are asked; fewer leave the numbers of the head."""
PLACES = 3
"""Decimal places of the numbers: another number of threads gives the same file."""


def calibrate_phrases(onnx: Path, dataset: Dataset) -> None:
    """Fit the probability of the pointing head of an exported model on the captions of "val".

    An image is asked for the phrases of its captions, and for as many of other images' captions
    without a common word. The score of the head and the cosine of phrase and image in the model
    have a logistic regression each. The probability is the logistic regression on the sum of both
    logits: a regression on the pair would trust the cosine too much, since the captions of "val"
    and of "train" name the same things.
    """
    captions = dataset.split("val").captions.groupby("image_id")["text"].agg(list)
    embedder, images = Embedder(onnx), list(captions.index)
    if len(images) < MIN_IMAGES or "image" not in embedder.inputs:
        log_line(f"presence of phrases: as without training ({len(images)} images of val)")
        return
    images = drawn(images, MAX_IMAGES, 0)
    file, head = onnx / FOLDER / DESCRIPTION, PointingHead(onnx / FOLDER)
    scores, present = list[tuple[float, float]](), list[bool]()
    asked = list(phrases_of([captions[image] for image in images]))
    for image, (own, others) in zip(track(images, "phrases"), asked, strict=True):
        content, phrases = dataset.read(image), [*own, *others]
        read, (vector,) = head.read(content), embedder.embed_images([content])
        cosines = embedder.embed_sentences(phrases) @ vector
        known = [presence_score(read.presence, weights) for weights in head.weights(phrases)]
        scores += zip(known, cosines.tolist(), strict=True)
        present += [True] * len(own) + [False] * len(others)
    labels = np.array(present)
    slope, cosine, offset = logit_sum(np.array(scores), labels).round(PLACES).tolist()
    if cosine <= 0:
        log_line("presence of phrases: as without training (the cosine does not tell them apart)")
        return
    write_json(file, {**read_json(file), "slope": slope, "cosine": cosine, "offset": offset})


def phrases_of(captions: Sequence[Sequence[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield for each image's captions their phrases, and as many phrases of the other images
    without a common word, if there are so many."""
    found = [
        {phrase.text.lower() for text in texts for phrase in split_phrases(text)}
        for texts in captions
    ]
    every = sorted(set().union(*found))
    words = [frozenset(tokenize(phrase)) for phrase in every]
    for texts, own in zip(captions, found, strict=True):
        named = {word for text in texts for word in tokenize(text)}
        absent = [phrase for phrase, of in zip(every, words, strict=True) if not of & named]
        yield sorted(own), drawn(absent, len(own), texts[0])


def logit_sum(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the weights of two scores (n, 2), and the intercept, of a logistic regression on the
    sum of the logits of a regression on each."""
    alone = [fit_logistic(scores[:, [column]], labels)[1] for column in range(2)]
    intercept, scale = fit_logistic((scores @ alone)[:, None], labels)
    return np.array([*(scale * np.array(alone)), intercept])
