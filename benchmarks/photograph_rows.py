"""The rows of the leaderboard on photographs, and the artifacts that a training of one reads."""

import copy
import random
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.nn.functional import adaptive_avg_pool2d

from benchmarks.common import ROOT
from benchmarks.halving import Budget
from benchmarks.leaderboard_page import Row
from benchmarks.scene_systems import make
from benchmarks.tuning import Search, read_search
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders.rmac import grid_regions, region_maxima
from runtime import parameters

ROWS_FILE = ROOT / "benchmarks" / "quality" / "leaderboard_flickr8k.yaml"


GROUPS = ("systems", "parts")


IMAGES_PER_STEP = 64


MEAN, CELLS, RMAC, MAPS = "mean", "cells", "R-MAC", "maps"
"""What a row reads of an image: the mean cell, a coarser grid of cells, the maxima of R-MAC's
regions, or the stored maps as they are."""


SCALES = 2


@dataclass(frozen=True)
class Board:
    """Rows, search and budget of the leaderboard on photographs.

    Attributes:
        images: number of training images, of images that choose, and the seed of the choice.
        side: cells per side of the coarser grid.
    """

    rows: tuple[Row, ...]
    search: Search
    budget: Budget
    images: tuple[int, int, int]
    side: int

    def row(self, name: str) -> Row:
        """Return the row of a name."""
        return next(row for row in self.rows if row.name == name)

    @property
    def protocol(self) -> str:
        """What two comparable records have in common, in one line."""
        train, held_out, _ = self.images
        search, budget = self.search, self.budget
        space = ", ".join(
            f"{name.replace('_', ' ')} {low:g} to {high:g}"
            for name, (low, high) in {**search.space, **search.closed_form}.items()
        )
        return (
            f"Protocol: {train} training images, {held_out} that choose; {search.trials} trials "
            f"by halving with factor {budget.reduction}; {budget.steps} steps, a validation after "
            f"each {budget.steps_per_round}; {self.side} x {self.side} cells; {space}."
        )


def read_board(file: Path = ROWS_FILE) -> Board:
    """Return the board of a file of rows, with the parameters of each row."""
    board = yaml.safe_load(file.read_text())
    base = parameters.load(ROOT / "params.yaml", [ROOT / board["features"]])
    search, budget = board["search"], Budget(**board["budget"])
    rows = [
        Row(
            group,
            name,
            row["differs"],
            _with_epochs(parameters.merge(base, row["overlay"]), budget.rounds),
            row["against"],
            row.get("chosen_for", row["against"] if group == "parts" else name),
            row.get("reads", MEAN),
        )
        for group in GROUPS
        for name, row in board[group].items()
    ]
    images = (search["images"]["train"], search["images"]["held_out"], search["seed"])
    return Board(tuple(rows), read_search(search), budget, images, board["side"])


def _with_epochs(values: dict[str, Any], rounds: int) -> dict[str, Any]:
    phases = [{**phase, "epochs": rounds} for phase in values["train_embedding"]["phases"]]
    return {**values, "train_embedding": {**values["train_embedding"], "phases": phases}}


def hold_out(root: Path, folder: Path, train: int, held_out: int, seed: int) -> Path:
    """Write a corpus: images of the training list, others of it as dev list, and the dev list as
    test list."""
    names = (root / "Flickr_8k.trainImages.txt").read_text().splitlines()
    random.Random(seed).shuffle(names)
    held, used = names[:held_out], names[held_out : held_out + train]
    if not (folder / "Flickr8k.token.txt").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        dev = (root / "Flickr_8k.devImages.txt").read_text().splitlines()
        for list_name, lines in (("train", used), ("dev", held), ("test", dev)):
            (folder / f"Flickr_8k.{list_name}Images.txt").write_text("\n".join(lines) + "\n")
        (folder / "images").symlink_to((root / "images").resolve())
        (folder / "Flickr8k.token.txt").write_bytes((root / "Flickr8k.token.txt").read_bytes())
    return folder


def inputs_of(board: Board, row: Row, home: Path) -> dict[str, Path]:
    """Return dataset, features, texts and sorter of a row, with the lists of ``hold_out``; make
    what does not exist.

    The features are of all images: the features of an image do not depend on other images.
    """
    values = copy.deepcopy(dict(row.values))
    dataset = make("prepare_dataset", values, {}, home)
    features = make("extract_features", values, {"dataset": dataset}, home)
    corpus, (train, held_out, seed) = values["prepare_dataset"]["corpus"], board.images
    folder = home / f"held_out-{train}-{held_out}-{seed}"
    corpus["root"] = str(hold_out(ROOT / corpus["root"], folder, train, held_out, seed))
    dataset = make("prepare_dataset", values, {}, home)
    return {
        "dataset": dataset,
        "features": pooled(features, row.reads, board.side),
        "text": make("vectorize_captions", values, {"dataset": dataset}, home),
        "sorter": make("pretrain_sorter", values, {}, home),
    }


def pooled(features: Path, reads: str, side: int) -> Path:
    """Return the folder of what a row reads of stored cells, float16; compute it if it does not
    exist."""
    if reads == MAPS:
        return features
    folder = features.with_name(f"{features.name}-{reads}-{side if reads == CELLS else ''}")
    if folder.is_dir():
        return folder
    store, partial_folder = FeatureStore(features), folder.with_suffix(".partial")
    partial_folder.mkdir(exist_ok=True)
    cells = isqrt(store.regions)
    kept = side if reads == CELLS else 1
    regions = grid_regions(cells, cells, SCALES) if reads == RMAC else []
    boxes = (
        torch.tensor([[x, y, x + s, y + s] for y, x, s in regions]) / cells
        if regions
        else cell_boxes(kept, kept)
    )
    metadata = {
        name: value
        for name, value in store.metadata.items()
        if name not in ("regions", "dim", "boxes")
    } | {"pooled": folder.name}
    with FeatureWriter(
        partial_folder, regions=len(boxes), dim=store.dim, metadata=metadata
    ) as writer:
        for start in range(len(writer.written), len(store), IMAGES_PER_STEP):
            rows = range(start, min(start + IMAGES_PER_STEP, len(store)))
            grid = store.gather(list(rows)).features.float().transpose(1, 2)
            maps = grid.unflatten(2, (cells, cells))
            values = (
                region_maxima(maps, SCALES)
                if regions
                else adaptive_avg_pool2d(maps, kept).flatten(2).transpose(1, 2)
            )
            for row, image in zip(rows, values.numpy(), strict=True):
                writer.add(store.image_ids[row], image, boxes.numpy())
    partial_folder.rename(folder)
    return folder
