"""The model card: what a registered model is, what it was made of and for, and how well it does.

After Mitchell et al., "Model cards for model reporting", FAT* 2019.
"""

from collections.abc import Mapping
from typing import Any

CARD = "MODEL_CARD.md"
DIRECTIONS = {"caption_retrieval": "captions of an image", "image_retrieval": "image of a caption"}


def model_card(
    name: str, split: str, protocol: str, figures: Mapping[str, Any], lineage: Mapping[str, Mapping[str, str]]
) -> str:
    """The card as Markdown.

    Args:
        name: of the image encoder.
        figures: what ``metrics.json`` holds.
        lineage: see ``components.evaluate.lineage``.
    """
    return "\n".join(
        [
            f"# {name}: images and sentences in one space",
            "",
            "A visual-semantic embedding, trained and exported by Bifocal. An image's features and a sentence become "
            "vectors of unit norm whose dot product says how well they match.",
            "",
            "## Intended use",
            "",
            "- Finding images by a sentence and sentences by an image, in collections like the one it was trained on.",
            "- Pointing at what a phrase names, where the figures below say that it can.",
            "",
            "Not for decisions about people, nor for content unlike its training data: whatever is asked, something is "
            "found, and the score of a wrong answer is no probability. What the captions of the training data leave "
            "out or get wrong about people and places, the model has learnt too.",
            "",
            "## Figures",
            "",
            f"On the split `{split}`, {figures['images']:,} images with {figures['captions']:,} captions, protocol "
            f"`{protocol}`. Intervals are 95 %, by a bootstrap over images.",
            "",
            *_table(figures),
            "",
            *_pointing(figures),
            "## Data, parameters and lineage",
            "",
            *(line for stage, rows in lineage.items() for line in _stage(stage, rows)),
        ]
    )


def _table(figures: Mapping[str, Any]) -> list[str]:
    lines = ["| | value | 95 % | re-ranked | chance |", "| --- | --- | --- | --- | --- |"]
    for direction, label in DIRECTIONS.items():
        for name, value in figures[direction].items():
            interval = figures["intervals"][direction][name]
            lines.append(
                f"| {label}, {name.replace('_', ' ')} | {value:.1f} | {interval['low']:.1f} to {interval['high']:.1f} "
                f"| {figures['reranked'][direction][name]:.1f} | {figures['chance'][direction][name]:.1f} |"
            )
    return lines


def _pointing(figures: Mapping[str, Any]) -> list[str]:
    if "pointing" not in figures:
        return ["It was not measured whether the model can point at what a phrase names.", ""]
    found = figures["pointing"]
    return [
        f"Pointing at {found['phrases']:,} phrases: {found['accuracy']:.1f} % hit ({found['low']:.1f} to "
        f"{found['high']:.1f}); the image's centre {found['centre']:.1f} %, a random point {found['random']:.1f} %.",
        "",
    ]


def _stage(stage: str, rows: Mapping[str, str]) -> list[str]:
    return [f"### {stage}", "", *(f"- {name}: `{value}`" for name, value in rows.items()), ""]
