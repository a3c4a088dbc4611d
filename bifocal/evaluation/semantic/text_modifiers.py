"""Text modifiers: share of answers that show a word, after it is added to a query image or
subtracted."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.retrieval.retrieval import top_answers
from bifocal.metrics.retrieval.modifiers import modified_queries, modifier_precision
from bifocal.models.phrase_locator import embed_texts
from bifocal.report.pictures import Thumbnails
from bifocal.report.sections import Answer, AnswerList, MetricRow, QueryList, ReportQuery, Section
from bifocal.text import tokenize

WORDS, QUERIES_PER_WORD, R = 12, 20, 10
SHOWN_WORDS, SHOWN_ANSWERS = 4, 4


class TextModifiers:
    """Share of the first answers that show a word, before and after it is added to a query image,
    or subtracted.

    Gordo and Larlus, CVPR 2017, section 6 and figure 5.
    """

    title = "Text modifiers"

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without single vectors per image, and without suitable
        words."""
        if subject.image_embeddings is None:
            return Result(
                self.title,
                skipped=f"A {type(subject.model).__name__} has no single vector per image.",
            )
        words, has_word = distinctive_words(subject.split, WORDS)
        if not words:
            return Result(
                self.title, skipped="No word occurs in the captions of 3 % to 25 % of the images."
            )
        images = normalize(subject.image_embeddings, dim=1)
        vectors = embed_texts(subject.model, subject.vectorizer, words).float().cpu()
        values = modifier_metrics(images, vectors, has_word, subject.seed)
        subtracted = modifier_metrics(images, vectors, has_word, subject.seed, weight=-1.0)
        note = (
            "The vector of a word is added to that of an image, and the sum is the query. "
            "Framed answers have the word in their captions; the query image does not. Over "
            f"all words and queries, {values['before']:.1f} % of the first answers have the "
            f"word before it is added and {values['after']:.1f} % after; "
            f"{values['chance']:.1f} % of all images have it. From query images with the word, "
            f"it is subtracted: of their first answers, {subtracted['before']:.1f} % have it "
            f"before and {subtracted['after']:.1f} % after."
        )
        shown = slice(SHOWN_WORDS)
        examples = modifier_examples(
            images,
            vectors[shown],
            words[shown],
            has_word[shown],
            subject.pairs.image_ids,
            subject.thumbnails,
            subject.seed,
        )
        return Result(
            self.title,
            {"modifiers": {**values, "subtracted": subtracted}},
            rows=[
                MetricRow(
                    "modifiers.after",
                    values["after"],
                    "Precision with the word",
                    baselines={"without it": values["before"], "chance": values["chance"]},
                ),
                MetricRow("modifiers.before", values["before"], "Precision without the word"),
                MetricRow("modifiers.chance", values["chance"], "Chance level"),
                MetricRow(
                    "modifiers.kept",
                    values["kept"],
                    "Similarity to the query image that is kept",
                    unit="",
                ),
                MetricRow(
                    "modifiers.subtracted.after",
                    subtracted["after"],
                    "Answers with the subtracted word",
                    baselines={"before": subtracted["before"], "chance": subtracted["chance"]},
                ),
            ],
            sections=[Section(self.title, note, [QueryList("Examples", examples)])],
        )


def modifier_metrics(
    images: Tensor, vectors: Tensor, has_word: Tensor, seed: int, weight: float = 1.0
) -> dict[str, float]:
    """Return ``bifocal.metrics.modifier_precision`` over drawn query images whose captions lack the
    word, or have the word if a negative ``weight`` subtracts it.
    """
    random = np.random.default_rng(seed)
    suitable = [(with_word == (weight < 0)).nonzero().flatten().numpy() for with_word in has_word]
    drawn = [random.permutation(rows)[:QUERIES_PER_WORD] for rows in suitable]
    word = torch.from_numpy(np.repeat(np.arange(len(drawn)), [len(rows) for rows in drawn]))
    queries = torch.from_numpy(np.concatenate(drawn))
    return modifier_precision(
        images, queries, vectors[word], has_word[word], weight=weight, r=min(R, len(images) - 1)
    )


def distinctive_words(dataset: Dataset, count: int) -> tuple[list[str], Tensor]:
    """Return at most ``count`` words that captions of one image repeat most often, and which images
    (W, N) have them; candidates have three letters or more and occur in the captions of 3 % to 25 %
    of the images.
    """
    rows, total = dataset.image_rows(dataset.captions["image_id"]), len(dataset.images)
    occurrences: dict[str, Counter[int]] = {}
    for row, text in zip(rows.tolist(), dataset.captions["text"], strict=True):
        for word in set(tokenize(text)):
            occurrences.setdefault(word, Counter())[row] += 1
    captions_per_image = {
        word: sum(images.values()) / len(images)
        for word, images in occurrences.items()
        if len(word) > 2 and 0.03 * total <= len(images) <= 0.25 * total
    }
    words = sorted(captions_per_image, key=lambda word: (-captions_per_image[word], word))[:count]
    has_word = torch.zeros(len(words), total, dtype=torch.bool)
    for number, word in enumerate(words):
        has_word[number, list(occurrences[word])] = True
    return words, has_word


def modifier_examples(
    images: Tensor,
    vectors: Tensor,
    words: Sequence[str],
    has_word: Tensor,
    image_ids: Sequence[str],
    thumbnails: Thumbnails,
    seed: int,
) -> list[ReportQuery]:
    """Return for each word a query image without it, and the first answers without and with the
    word."""
    queries = []
    random = np.random.default_rng(seed)
    for word, vector, correct in zip(words, vectors, has_word, strict=True):
        row = int(random.choice((~correct).nonzero().flatten().numpy()))
        results = []
        modified = modified_queries(images[row : row + 1], vector[None], 1.0)[0]
        for label, query in (("Image alone", images[row]), ("Image and word", modified)):
            scores = images @ query
            scores[row] = -torch.inf
            answers = [
                Answer(
                    bool(correct[answer]), f"{score:.2f}", image=thumbnails.uri(image_ids[answer])
                )
                for score, answer in top_answers(scores, torch.arange(len(images)), SHOWN_ANSWERS)
            ]
            results.append(AnswerList(answers, label))
        queries.append(ReportQuery(results, f"+ “{word}”", thumbnails.uri(image_ids[row])))
    return queries
