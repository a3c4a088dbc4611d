"""Model card as Markdown: intended use, metrics and lineage (Mitchell et al., FAT* 2019), and
metadata for a hub."""

import math
from collections.abc import Mapping, Sequence

from bifocal.report.sections import MetricRow

FILE = "MODEL_CARD.md"
MARK = "---\n"
"""Line before and after the metadata."""
TASK, TAGS = "feature-extraction", ("visual-semantic-embedding", "image-text-retrieval", "onnx")
VECTORS = (
    "It maps image features and sentences to vectors; a high score of two vectors means that "
    "image and sentence match."
)
PAIRS = (
    "It compares the words of a sentence with the cells of an image, and scores the pair; a "
    "high score means that they match. Neither has a vector of its own."
)
INTENDED_USE = """\
- Finding images by a sentence and sentences by an image, in collections like the training data.
- Locating phrases in images, if the metrics below include it.

Do not use it for decisions about people, or for content unlike its training data. A search always returns results,
relevant or not, and scores are not probabilities. The model learns what the training captions omit or get wrong about
people and places.
"""


def model_card(
    name: str,
    data: str,
    results: Mapping[str, Sequence[MetricRow]],
    lineage: Mapping[str, Mapping[str, str]],
    *,
    corpus: str,
    split: str,
    single_vector: bool = True,
) -> str:
    """Return the card of a model that was evaluated on a split of a corpus.

    Without a single vector for an image and for a sentence, the model scores pairs.
    """
    lines = [
        _metadata(name, corpus, split, results),
        f"# {name}: images and sentences in one vector space",
        "",
        "Visual-semantic embedding, trained and exported with Bifocal. "
        f"{VECTORS if single_vector else PAIRS}",
        "",
        "## Intended use",
        "",
        INTENDED_USE,
        "## Metrics",
        "",
        f"{data} Intervals: 95 %, bootstrap over images.",
        "",
    ]
    for title, rows in results.items():
        lines += _table(title, rows)
    lines += ["## Data, parameters and lineage", ""]
    for artifact, values in lineage.items():
        lines += [
            f"### {artifact}",
            "",
            *(f"- {key}: `{value}`" for key, value in values.items()),
            "",
        ]
    return "\n".join(lines)


def _metadata(
    name: str, corpus: str, split: str, results: Mapping[str, Sequence[MetricRow]]
) -> str:
    """Return the metadata that the Hugging Face hub reads, with the metrics as its
    ``model-index``."""
    from huggingface_hub import EvalResult, ModelCardData

    found = [
        EvalResult(
            TASK, corpus, corpus, row.name, row.value, dataset_split=split, metric_name=row.title
        )
        for rows in results.values()
        for row in rows
        if math.isfinite(row.value)
    ]
    data = ModelCardData(
        library_name="bifocal",
        pipeline_tag=TASK,
        tags=list(TAGS),
        model_name=name,
        eval_results=found or None,
    )
    return f"{MARK}{data.to_yaml()}\n{MARK}"


def _table(title: str, rows: Sequence[MetricRow]) -> list[str]:
    lines = [f"| {title} | value | 95 % | baselines |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {r.title} | {r.value_text()} | {r.interval_text()} | {r.baselines_text()} |"
        for r in rows
    ]
    return [*lines, ""]
