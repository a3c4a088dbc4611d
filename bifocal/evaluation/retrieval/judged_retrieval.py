"""Retrieval against human judgments of all images and captions, where a caption may fit several
images."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor

from bifocal.datasets.formats.files import check_columns, read_json
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.retrieval.ranked_split import DIRECTIONS, split_scores
from bifocal.evaluation.retrieval.retrieval import ProtocolName
from bifocal.metrics import PROTOCOLS, precision_at_r, ranks, split_folds
from bifocal.metrics.bootstrap import mean_interval
from bifocal.metrics.retrieval.blockwise_ranks import IMAGES, BlockScores
from bifocal.metrics.retrieval.precision import PRECISIONS
from bifocal.report.sections import MetricRow, Section, metric_table

Judgments = Literal["eccv", "cxc"]
NAMES: Mapping[Judgments, str] = {"eccv": "ECCV Caption", "cxc": "CxC"}
MATCH = 3.0
"""Least mean score, of 0 to 5, of a matching pair in CxC."""
COLUMNS = ("caption", "image", "agg_score")


@dataclass(frozen=True)
class JudgedPairs:
    """Correct candidates by query: captions by image id, and images by caption id. Other queries
    are not judged."""

    captions: Mapping[str, frozenset[str]]
    images: Mapping[str, frozenset[str]]


def read_judged_pairs(
    folder: Path, judgments: Judgments, split: str, own: Iterable[tuple[str, str]] = ()
) -> JudgedPairs:
    """Read ``<judgments>_image_to_caption.json`` and ``<judgments>_caption_to_image.json``, as in
    the package ``eccv_caption``; or, for CxC, ``sits_<split>.csv`` of its authors.

    Args:
        own: pairs (image_id, caption_id) of the corpus; the file of CxC adds pairs, and removes
            those that people rated below ``MATCH``.

    Raises:
        ValueError: a file is missing or invalid.
    """
    files = [
        folder / f"{judgments}_{name}.json" for name in ("image_to_caption", "caption_to_image")
    ]
    scores = folder / f"sits_{split}.csv"
    if judgments == "cxc" and not files[0].is_file() and scores.is_file():
        rated = _read_scores(scores)
        matching = [pair for pair, score in rated.items() if score >= MATCH]
        return _grouped([*(pair for pair in own if pair not in rated), *matching])
    captions, images = (_read_lists(path, NAMES[judgments]) for path in files)
    return JudgedPairs(captions, images)


def _read_lists(path: Path, corpus: str) -> dict[str, frozenset[str]]:
    lists: dict[str, Any] = read_json(path, corpus)
    for query, candidates in lists.items():
        if not isinstance(candidates, list) or not candidates:
            raise ValueError(
                f"{path}: {query!r} has {candidates!r}, expected a list of at least one id"
            )
    return {query: frozenset(map(str, candidates)) for query, candidates in lists.items()}


def _read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Return the mean score of each pair (image_id, caption_id) of
    ``COCO_val2014:sentid:732091,COCO_val2014_000000365325.jpg,2.2,c2i_intrasim``."""
    table = pd.read_csv(path)
    check_columns(path, table.columns, COLUMNS)
    incomplete = table[list(COLUMNS)].isna().any(axis=1)
    if incomplete.any():
        raise ValueError(
            f"{path}, line {int(incomplete.to_numpy().argmax()) + 2}: the row is not complete"
        )
    images = (str(int(PurePosixPath(name).stem.rpartition("_")[2])) for name in table["image"])
    captions = (name.rpartition(":")[2] for name in table["caption"])
    return dict(zip(zip(images, captions, strict=True), table["agg_score"], strict=True))


def _grouped(pairs: Iterable[tuple[str, str]]) -> JudgedPairs:
    captions: dict[str, set[str]] = {}
    images: dict[str, set[str]] = {}
    for image_id, caption_id in pairs:
        captions.setdefault(image_id, set()).add(caption_id)
        images.setdefault(caption_id, set()).add(image_id)
    by_image, by_caption = (
        {query: frozenset(found) for query, found in one.items()} for one in (captions, images)
    )
    return JudgedPairs(by_image, by_caption)


class JudgedRetrieval:
    """R@K, R-Precision and mAP@R of COCO's test images and captions against judgments of people.

    COCO counts one image as correct for a caption, although others fit. ECCV Caption (Chun et al.,
    ECCV 2022) and CxC (Parekh et al., EACL 2021) list images and captions that people judged to
    match. Queries are the judged ones, candidates are all images and captions of the protocol. A
    judged answer that is no candidate is never found: the lists of ECCV Caption have two captions
    beyond the five of an image, which its package counts in the same way.

    Args:
        folder: the judgments in their published layout: ``eccv_image_to_caption.json`` and
            ``eccv_caption_to_image.json``, and the same of ``cxc``, as in the package
            ``eccv_caption``; or ``sits_test.csv`` of CxC. None skips the evaluator.
        judgments: ``eccv``, ``cxc`` or both.
        protocol: with one fold; COCO's 5,000 test images with five captions each, unless the split
            is smaller.
        ks: K of R@K.
    """

    title = "Judged retrieval"

    def __init__(
        self,
        folder: Path | str | None = None,
        judgments: Sequence[Judgments] = ("eccv", "cxc"),
        protocol: ProtocolName = "coco_5k",
        ks: Sequence[int] = (1, 5, 10),
    ) -> None:
        if PROTOCOLS[protocol].folds > 1:
            raise ValueError(
                f"the protocol {protocol} has several folds, and judged pairs cross them: use "
                "coco_5k"
            )
        self.folder, self.judgments, self.protocol = folder, tuple(judgments), protocol
        self.ks = tuple(ks)

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; raise ``ValueError`` if its split lacks judged images or
        captions."""
        if self.folder is None:
            return Result(
                self.title, skipped="No judgments: give the folder of ECCV Caption or CxC."
            )
        (fold,) = split_folds(
            PROTOCOLS[self.protocol], subject.pairs.image_of_caption, len(subject.pairs.image_ids)
        )
        images = subject.split.images["image_id"].iloc[fold.images.numpy()].tolist()
        table = subject.split.captions.iloc[fold.captions.numpy()]
        captions, own = table["caption_id"].astype(str).tolist(), table["image_id"].tolist()
        scores = split_scores(subject)
        directions: dict[str, tuple[BlockScores, list[str], int]] = {
            "caption_retrieval": (
                lambda rows, columns: scores(fold.images[rows], fold.captions[columns]),
                images,
                len(captions),
            ),
            "image_retrieval": (
                lambda rows, columns: scores(fold.images[columns], fold.captions[rows]).T,
                own,
                len(images),
            ),
        }
        metrics: dict[str, Any] = {}
        rows, sections = [], []
        for key in self.judgments:
            name = NAMES[key]
            pairs = read_judged_pairs(
                Path(self.folder), key, subject.split_name, zip(own, captions, strict=True)
            )
            answers, absent = candidate_rows(pairs, images, captions, name)
            metrics[key], blocks = {}, []
            for (direction, (block, image_ids, candidates)), queries in zip(
                directions.items(), answers, strict=True
            ):
                values = self.measure(block, queries, candidates)
                found = list(
                    self._rows(
                        f"{key}.{direction}",
                        name,
                        values,
                        [image_ids[row] for row in queries],
                        subject,
                    )
                )
                metrics[key][direction] = {row.name.rpartition(".")[2]: row.value for row in found}
                metrics[key][direction]["queries"] = len(queries)
                blocks.append(
                    metric_table(f"{DIRECTIONS[direction]}: {len(queries):,} queries", found)
                )
                rows += found
            note = (
                f"Answers that people judged to match, among {len(images):,} images with "
                f"{len(captions):,} captions."
            )
            if absent:
                note += f" {absent} of the answers are not among them, and never found."
            sections.append(Section(f"{self.title}: {name}", note, blocks))
        return Result(self.title, metrics, rows=rows, sections=sections)

    def _rows(
        self, prefix: str, name: str, values: Tensor, image_ids: Sequence[str], subject: Subject
    ) -> Iterator[MetricRow]:
        """Yield the means of ``values`` in percent, with their intervals."""
        for column, label in enumerate([*(f"R@{k}" for k in self.ks), *PRECISIONS]):
            percent = 100 * values[:, column]
            interval = mean_interval(
                percent.numpy(), image_ids, resamples=subject.resamples, seed=subject.seed
            )
            yield MetricRow(
                f"{prefix}.{label}",
                float(percent.mean()),
                f"{name}, {label}",
                interval,
                headline=label == PRECISIONS[1],
            )

    def measure(
        self, scores: BlockScores, answers: Mapping[int, Sequence[int | None]], candidates: int
    ) -> Tensor:
        """Return the hits at each K, R-Precision and AP@R of each query (Q, K + 2).

        Answers None get columns of their own, behind all candidates.
        """
        blocks, columns = [], torch.arange(candidates)
        for rows in torch.tensor(list(answers)).split(IMAGES):
            found = [answers[row] for row in rows.tolist()]
            block = scores(rows, columns)
            never = block.new_full((len(rows), max(one.count(None) for one in found)), -torch.inf)
            block = torch.cat([block, never], dim=1)
            matches = torch.zeros(block.shape, dtype=torch.bool)
            for number, one in enumerate(found):
                matches[number, [row for row in one if row is not None]] = True
                matches[number, candidates : candidates + one.count(None)] = True
            ranked = ranks(block, matches)
            hits = torch.stack([ranked.hits(k) for k in self.ks], dim=1)
            blocks.append(torch.cat([hits, precision_at_r(block, matches)], dim=1))
        return torch.cat(blocks)


Answers = dict[int, list[int | None]]


def candidate_rows(
    pairs: JudgedPairs, images: Sequence[str], captions: Sequence[str], name: str
) -> tuple[tuple[Answers, Answers], int]:
    """Return the rows of the correct candidates by the row of the query, of image and of caption
    queries, None for an answer that is not a candidate; and the number of these.

    Raises:
        ValueError: a query is not among the images or captions.
    """
    row_of_image = {image_id: row for row, image_id in enumerate(images)}
    row_of_caption = {caption_id: row for row, caption_id in enumerate(captions)}
    absent = (
        sorted(pairs.captions.keys() - row_of_image),
        sorted(pairs.images.keys() - row_of_caption),
    )
    if any(absent):
        raise ValueError(
            f"{name} judges {len(absent[0])} images and {len(absent[1])} captions that are not "
            f"among the ranked ones, such as {', '.join([*absent[0][:2], *absent[1][:2]])}: "
            "evaluate COCO's test split of Karpathy, five captions per image"
        )
    of_images = {
        row_of_image[image]: [row_of_caption.get(caption) for caption in found]
        for image, found in pairs.captions.items()
    }
    of_captions = {
        row_of_caption[caption]: [row_of_image.get(image) for image in found]
        for caption, found in pairs.images.items()
    }
    missing = set[str]().union(*pairs.captions.values()) - row_of_caption.keys()
    missing |= set[str]().union(*pairs.images.values()) - row_of_image.keys()
    return (of_images, of_captions), len(missing)
