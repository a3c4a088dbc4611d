"""Pointing by the backbone: guesses and refusals of the pointing head that is served with the
model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.localization.heatmaps import IMAGE_SIDE, SIDE
from bifocal.localization.heads import ClassMixture
from bifocal.metrics import center_baseline, pointing_hits
from bifocal.metrics.bootstrap import mean_interval
from bifocal.onnx.heatmaps import peak
from bifocal.onnx.pointing import LIKELY, Place, Pointer, PointingHead
from bifocal.onnx.pointing.phrases import split_phrases
from bifocal.onnx.text.captions import tokenize
from bifocal.report.pictures import Thumbnails, heatmap_overlay
from bifocal.report.sections import (
    Gallery,
    GalleryItem,
    MetricRow,
    Picture,
    Section,
    metric_table,
)

MEASURED_IMAGES = 100
"""Images whose phrases with boxes are pointed at, at most."""
PLACES = frozenset(
    [
        "left",
        "right",
        "front",
        "back",
        "background",
        "foreground",
        "middle",
        "center",
        "side",
        "top",
        "bottom",
        "distance",
        "it",
        "them",
        "him",
        "they",
    ]
)
"""Words between the separators of a caption that name no thing."""
NOTE = (
    "Phrases of captions, and phrases of other images' captions, in images of the split. The "
    "pointing head mixes the classes of the backbone and was not trained on these images. A "
    "ring is a guess; a phrase that is probably not in the image gets no ring."
)


class BackbonePointing:
    """Guesses and refusals of a backbone's pointing head, with its accuracy if phrases have boxes.

    The accuracy is the pointing game's, on the phrases of at most 100 images. The report
    shows images with a phrase of their own captions and one of another image's captions.

    Args:
        head: part of ``bifocal.localization.heads``, as it is exported; None for ``ClassMixture``
            by words.
    """

    title = "Pointing by the backbone"
    parts: ClassVar[Mapping[str, str]] = {"head": "bifocal.localization.heads"}

    def __init__(self, head: ClassMixture | None = None) -> None:
        self.head = head or ClassMixture()

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without weights of a backbone with a classifier, or without
        image files."""
        order = np.random.default_rng(subject.seed).permutation(
            subject.split.images["image_id"].to_numpy(dtype=str)
        )
        try:
            head = self._export(subject)
            subject.dataset.image_path(str(order[0]))
        except ValueError as error:
            return Result(self.title, skipped=f"{str(error).rstrip('.')}.")
        images = [str(image) for image in order]
        metrics = self._measure(head, subject, images[:MEASURED_IMAGES])
        rows = [] if metrics is None else _rows(metrics)
        blocks = [metric_table("", rows)] if rows else []
        gallery = Gallery(shown_items(head, subject, images[: 2 * subject.shown]))
        return Result(
            self.title,
            {} if metrics is None else {"backbone_pointing": metrics},
            rows=rows,
            sections=[Section(self.title, NOTE, [*blocks, gallery])],
        )

    def _export(self, subject: Subject) -> Pointer:
        from bifocal.export.pointing import export_head  # imports onnx, which takes a second

        weights, description = subject.features.directory / WEIGHTS_FILE, subject.features.metadata
        if not weights.is_file() or "backbone" not in description:
            raise ValueError("The features keep no weights of a backbone.")
        with TemporaryDirectory() as folder:
            export_head(description, weights, self.head, Path(folder), subject.seed)
            return PointingHead(Path(folder))

    def _measure(self, head: Pointer, subject: Subject, images: list[str]) -> dict[str, Any] | None:
        """Return the accuracy in percent, its 95 % interval and the center's accuracy; None without
        boxes."""
        phrases = subject.split.phrases
        phrases = phrases[phrases["image_id"].isin(images)]
        if not len(phrases):
            return None
        sizes = subject.split.images.set_index("image_id")[["width", "height"]]
        points: list[NDArray[np.float64]] = []
        ids: list[str] = []
        boxes: list[NDArray[Any]] = []
        for image, of_image in phrases.groupby("image_id", sort=False):
            content = subject.dataset.read(str(image))
            places = head.locate(content, list(of_image["phrase"]), SIDE)
            points += [
                np.array(peak(place.heatmap)) * sizes.loc[image].to_numpy() for place in places
            ]
            ids += [str(image)] * len(places)
            boxes += list(of_image["boxes"])
        hits = 100 * pointing_hits(np.array(points), boxes).astype(np.float64)
        low, high = mean_interval(hits, ids, resamples=subject.resamples, seed=subject.seed)
        center = 100 * float(center_baseline(sizes.loc[ids].to_numpy(np.float64), boxes).mean())
        return {
            "accuracy": float(hits.mean()),
            "low": low,
            "high": high,
            "center": center,
            "phrases": len(boxes),
        }


def shown_items(head: Pointer, subject: Subject, images: list[str]) -> list[GalleryItem]:
    """Return pictures of each image with a phrase of its captions, and with a phrase of the next
    image's captions."""
    rng, captions = (
        np.random.default_rng(subject.seed),
        subject.split.captions.groupby("image_id")["text"].agg(list),
    )
    phrases = [_draw(captions.get(image, []), rng) for image in images]
    items = []
    for image, own, other in zip(images, phrases, phrases[1:] + phrases[:1], strict=True):
        asked = [phrase for phrase in dict.fromkeys((own, other)) if phrase]
        for phrase, place in zip(
            asked, head.locate(subject.dataset.read(image), asked, SIDE), strict=True
        ):
            items.append(_item(subject.thumbnails, image, phrase, place))
    return items


def _item(thumbnails: Thumbnails, image: str, phrase: str, place: Place) -> GalleryItem:
    picture = thumbnails.uri(image, IMAGE_SIDE)
    if not place.present:
        return GalleryItem([Picture(picture)], f"no {phrase!r} in this image")
    x, y = peak(place.heatmap)
    shown = Picture(picture, heatmap_overlay(place.heatmap), point=(100 * x, 100 * y))
    unlikely = place.probability is not None and place.probability < LIKELY
    caption = f"perhaps no {phrase!r} in this image" if unlikely else f"{phrase!r}: a guess"
    return GalleryItem([shown], caption)


def things(captions: Sequence[str]) -> list[str]:
    """Return the phrases of an image that most captions agree on: the rarest word of each is in the
    most captions.

    Phrases that name no thing, such as "left" and "playing", are left out.

    Example:
        >>> things(
        ...     ["A brown dog playing on the left.", "A brown dog on grass", "The brown dog jumps"]
        ... )
        ['brown dog']
    """
    phrases = {phrase.text.lower() for caption in captions for phrase in split_phrases(caption)}
    named = [
        phrase for phrase in sorted(phrases) if any(_is_thing(word) for word in phrase.split())
    ]
    words = [set(tokenize(caption)) for caption in captions]
    agreed = [
        min((sum(word in own for own in words) for word in tokenize(phrase)), default=0)
        for phrase in named
    ]
    return [phrase for phrase, count in zip(named, agreed, strict=True) if count == max(agreed)]


def _is_thing(word: str) -> bool:
    return word not in PLACES and not word.endswith("ing")


def _draw(captions: list[str], rng: np.random.Generator) -> str:
    phrases = things(captions)
    return phrases[rng.integers(len(phrases))] if phrases else ""


def _rows(metrics: Mapping[str, Any]) -> list[MetricRow]:
    interval = (metrics["low"], metrics["high"])
    return [
        MetricRow(
            "backbone_pointing.accuracy",
            metrics["accuracy"],
            f"Accuracy, {metrics['phrases']:,} phrases",
            interval,
            {"image center": metrics["center"]},
        )
    ]
