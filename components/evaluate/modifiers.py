"""What a word changes that is added to a query image."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.metrics.retrieval.modifiers import modified_queries, modifier_precision
from bifocal.report.page import Modified, Result
from bifocal.text import tokenize
from components.evaluate.examples import top_results
from components.evaluate.pictures import Thumbnails

WORDS, QUERIES, FIRST = 12, 20, 10


def modifier_figures(
    images: Tensor, dataset: Dataset, embed: Callable[[list[str]], Tensor], seed: int
) -> dict[str, float]:
    """``modifier_precision`` over a few drawn query images for each of a few words, none of which shows it.

    Args:
        images: of unit norm.
        embed: gives the vectors of words.

    Returns:
        nothing where no word is worth adding.
    """
    words, shows = telling_words(dataset, WORDS)
    if not words:
        return {}
    vectors, random = embed(words).float().cpu(), np.random.default_rng(seed)
    drawn = [(~shown).nonzero().flatten().numpy() for shown in shows]
    chosen = [random.permutation(rows)[:QUERIES] for rows in drawn]
    word = torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(rows) for rows in chosen]))
    queries = torch.from_numpy(np.concatenate(chosen))
    return modifier_precision(images, queries, vectors[word], shows[word], r=min(FIRST, len(images) - 1))


def telling_words(dataset: Dataset, count: int) -> tuple[list[str], Tensor]:
    """Words that tell images apart, and which image's captions have them.

    Of the words of three letters or more that stand at 3 % to 25 % of the images, those that are said most
    consistently: where one caption has the word, the image's others have it too.

    Returns:
        the words, and (words, N) bool.
    """
    rows = {image_id: row for row, image_id in enumerate(dataset.images["image_id"])}
    said: dict[str, Counter[int]] = {}
    for image_id, text in zip(dataset.captions["image_id"], dataset.captions["text"], strict=True):
        for word in set(tokenize(text)):
            said.setdefault(word, Counter())[rows[image_id]] += 1
    total = len(rows)
    usual = {
        word: sum(images.values()) / len(images)
        for word, images in said.items()
        if len(word) > 2 and 0.03 * total <= len(images) <= 0.25 * total
    }
    words = sorted(usual, key=lambda word: (-usual[word], word))[:count]
    shows = torch.zeros(len(words), total, dtype=torch.bool)
    for number, word in enumerate(words):
        shows[number, list(said[word])] = True
    return words, shows


def modified_examples(
    images: Tensor,
    vectors: Tensor,
    words: Sequence[str],
    shows: Tensor,
    image_ids: Sequence[str],
    thumbnails: Thumbnails,
    seed: int,
) -> list[Modified]:
    """For each word a query image that does not show it, and its first results without and with the word."""
    found = []
    random = np.random.default_rng(seed)
    for word, vector, shown in zip(words, vectors, shows, strict=True):
        without = (~shown).nonzero().flatten().numpy()
        query = int(random.choice(without))
        strips = []
        for asked in (images[query], modified_queries(images[query : query + 1], vector[None], 1.0)[0]):
            scores = images @ asked
            scores[query] = -torch.inf
            strips.append(
                [
                    Result(bool(shown[row]), f"{score:.2f}", image=thumbnails.of(image_ids[row]))
                    for score, row in top_results(scores, torch.arange(len(images)))[:4]
                ]
            )
        found.append(Modified(word, thumbnails.of(image_ids[query]), *strips))
    return found
