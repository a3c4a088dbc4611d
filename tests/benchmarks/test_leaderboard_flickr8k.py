"""The leaderboard of photographs: its rows, its search and its page."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import yaml
from safetensors.torch import save_file

from benchmarks import leaderboard_page as pages
from benchmarks import photograph_rows as board_rows
from benchmarks import photograph_systems as systems
from benchmarks.photograph_encoders import HypercolumnLevels, StoredRMAC
from benchmarks.quality import leaderboard_flickr8k as board
from benchmarks.tuning import Trial, Tuned
from bifocal.models import build_model
from bifocal.registry import build
from tests.flickr8k_bucket import scene_files

BOARD = board_rows.read_board()
ROWS = BOARD.rows
TEXTS = {
    "TFIDF": "sparse",
    "Concatenated": "sparse",
    "Word2Vec": "tokens",
    "TransformerTokens": "contextual",
}
CHANNELS, PROTOCOL = 2960, BOARD.protocol


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_valid_parameters_and_its_model_reads_its_text(row: pages.Row) -> None:
    params = systems.validated(row.values)
    text = TEXTS[row.values["vectorize_captions"]["vectorizer"]["name"]]
    words = 7 if text == "tokens" else None
    with torch.device("meta"):
        model = build_model(
            params.model,
            feature_dim=208 if row.reads == board_rows.MAPS else CHANNELS,
            text_dim=6,
            text_format=text,
            vocabulary_size=words,
        )
    assert model.image_encoder.dim == row.values["train_embedding"]["model"]["dim"]
    for phase in params.phases:
        build("bifocal.training.batches", phase.batches)
        build("bifocal.losses", phase.loss, sorter=None)


def test_rows_have_one_backbone_and_one_budget_and_parts_the_values_of_their_system() -> None:
    first, *others = (row.values["extract_features"] for row in ROWS if row.reads != "maps")
    assert all(other == first for other in others)
    for row in ROWS:
        extractor = row.values["extract_features"]
        assert extractor["extractor"]["backbone"] == first["extractor"]["backbone"]
        assert extractor["weights"] == first["weights"]
        phases = row.values["train_embedding"]["phases"]
        assert [phase["epochs"] for phase in phases] == [BOARD.budget.rounds] * len(phases)
        assert BOARD.row(row.against).group == "systems"
        assert row.chosen_for == (row.name if row.group == "systems" else row.against)


def test_images_of_the_training_list_choose_and_the_dev_list_is_only_measured(
    tmp_path: Path,
) -> None:
    root = tmp_path / "corpus"
    (root / "images").mkdir(parents=True)
    (root / "Flickr_8k.trainImages.txt").write_text("".join(f"{name}.jpg\n" for name in range(20)))
    (root / "Flickr_8k.devImages.txt").write_text("dev.jpg\n")
    (root / "Flickr8k.token.txt").write_text("0.jpg#0\tA dog .\n")
    held = board_rows.hold_out(root, tmp_path / "held", 12, 5, seed=7)
    lists = (
        (held / f"Flickr_8k.{name}Images.txt").read_text().split()
        for name in ("train", "dev", "test")
    )
    train, chosen, reported = lists
    assert (len(train), len(chosen), len({*train, *chosen})) == (12, 5, 17)
    assert reported == ["dev.jpg"]
    assert "dev.jpg" not in {*train, *chosen}
    assert board_rows.hold_out(root, held, 12, 5, seed=7) == held


def small_board(folder: Path) -> Path:
    """Draw a corpus in the layout of Flickr8k, and write a board of few rows for it."""
    for name, content in scene_files(folder / "drawn", train=60, val=16, test=4).items():
        file = folder / "corpus" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    backbone: dict[str, Any] = {
        "backbone": "resnet10t",
        "size": 64,
        "model_arguments": {"channels": [8, 16, 24, 32], "stem_width": 8},
    }
    network = timm.create_model("resnet10t", **backbone["model_arguments"])
    save_file(network.state_dict(), folder / "network.safetensors")
    weights = {"weights": {"name": "FromFile", "path": str(folder / "network.safetensors")}}
    recipe = {
        "prepare_dataset": {
            "corpus": {"name": "Flickr8k", "root": str(folder / "corpus")},
            "copy_images": False,
        },
        "extract_features": weights
        | {"extractor": {"name": "Hypercolumns", "layers": ["layer3", "layer4"], **backbone}},
        "vectorize_captions": {"vectorizer": {"name": "TFIDF", "min_count": 1}},
        "train_embedding": {"precision": "float32", "ema_decay": 0.5},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    board = yaml.safe_load(board_rows.ROWS_FILE.read_text())
    kept = ("SMILE + InfoNCE", "semantic retrieval (V+T)", "CCA", "linear + InfoNCE")
    board["features"], board["side"] = str(folder / "recipe.yaml"), 2
    board["budget"] = {"steps": 9, "rounds": 3, "reduction": 3}
    board["search"] |= {"images": {"train": 48, "held_out": 12}, "trials": 4, "seeds": [1, 2]}
    board["systems"] = {name: board["systems"][name] for name in kept}
    board["systems"]["SMILE + InfoNCE"]["overlay"]["vectorize_captions"]["vectorizer"]["dim"] = 8
    text = {"vectorizer": {"name": "TFIDF", "documents": "images", "min_count": 1}}
    of_maps = {"extractor": {"name": "Grid", "stage": "layer3", **backbone}} | weights
    smile = board["systems"]["SMILE + InfoNCE"]["overlay"]
    last = {
        "name": "benchmarks.photograph_encoders:LastLayersBEAN",
        "backbone": "resnet10t",
        "layer": "layer3",
        "cells": 4,
        "maps": 8,
        "model_arguments": backbone["model_arguments"],
    }
    model = smile["train_embedding"]["model"] | {"image_encoder": last}
    parts = {
        "semantic retrieval, R-MAC": board["parts"]["semantic retrieval, R-MAC"],
        "trained last layers": {
            "differs": "the last layers train",
            "against": "SMILE + InfoNCE",
            "reads": board_rows.MAPS,
            "overlay": smile
            | {
                "extract_features": of_maps,
                "train_embedding": smile["train_embedding"] | {"model": model},
            },
        },
    }
    board["parts"] = parts
    for row in (*board["systems"].values(), *parts.values()):
        overlay = row["overlay"]
        if overlay["vectorize_captions"]["vectorizer"]["name"] == "TFIDF":
            overlay["vectorize_captions"] = text
        for phase in overlay["train_embedding"]["phases"]:
            size = 8 if "captions_per_image" not in phase["batches"] else 40
            phase["batches"] |= {"batch_size": size}
            if phase["batches"]["name"] == "MinedTriplets":
                phase["batches"] |= {
                    "neighbors": 4,
                    "positives_per_query": 2,
                    "queries_per_pool": 12,
                    "steps_per_epoch": 2,
                }
        model = overlay["train_embedding"]["model"] = dict(overlay["train_embedding"]["model"])
        model["dim"] = 8
    (folder / "rows.yaml").write_text(yaml.safe_dump(board))
    return folder / "rows.yaml"


@pytest.mark.slow
def test_a_killed_board_goes_on_and_ends_with_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, home, output = small_board(tmp_path), tmp_path / "home", tmp_path / "record.md"
    arguments = ["board", "--rows", str(rows), "--home", str(home), "--output", str(output)]
    arguments += ["--results", str(tmp_path / "results"), "--jobs", "1"]

    def run(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*arguments, *more])
        board.main()
        return capsys.readouterr().out

    planned = run("--plan")
    names = [row.name for row in board_rows.read_board(rows).rows]
    assert all(name in planned for name in names)
    small = board_rows.read_board(rows)
    assert [name for name in names if systems.plan(small, home, name)["step"] == 0] == ["CCA"]
    assert "core hours, at most 8" in planned
    assert not (home / "models").exists()
    assert "Not trained yet: " + ", ".join(names) in run("--minutes", "0")
    run("--only", "CCA")
    first = output.read_text()
    assert f"Not trained yet: {', '.join(name for name in names if name != 'CCA')}." in first

    trained: list[str] = []
    whole = systems._train

    def killed(*given: Any) -> list[float]:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append("")
        return whole(*given)

    monkeypatch.setattr(board, "run_at_once", at_once)
    monkeypatch.setattr(systems, "_train", killed)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(systems, "_train", whole)
    stored = {file: file.stat().st_mtime_ns for file in (home / "rows").iterdir()}
    text = run()
    assert all(file.stat().st_mtime_ns == time for file, time in stored.items())
    assert "Not trained yet" not in text
    record = output.read_text()
    assert all(record.count(f"| {name} |") >= 1 for name in names)
    assert board_rows.read_board(rows).protocol in record
    tuned = {name: board.run_row(rows, home, name, float("-inf")) for name in names}
    assert {name: len(one.seeds) for name, one in tuned.items()} == {
        name: 1 if name == "CCA" else 2 for name in names
    }
    assert all(one.tried in (4, 5) for one in tuned.values() if one.validation)


def at_once(names: list[str], run: Any, jobs: int, end: float) -> None:
    for name in names:
        run(name, end)


def test_levels_are_consecutive_channels_and_regions_have_unit_norm() -> None:
    torch.manual_seed(0)
    levels = HypercolumnLevels(input_dim=7, dim=3, channels=(2, 5)).eval()
    cells, mask = torch.randn(2, 4, 7), torch.tensor([[True] * 4, [True, True, False, True]])
    found = levels(cells, mask)
    for level, part in enumerate((cells[:, :, :2], cells[:, :, 2:])):
        vectors = torch.nn.functional.normalize(levels.levels[level](part), dim=2)
        torch.testing.assert_close(found[:, level], vectors * mask[:, :, None])
    rmac = StoredRMAC(input_dim=7, dim=3)
    regions, weight, bias = cells[0].tolist(), rmac.whitening.weight, rmac.whitening.bias
    total = [0.0] * 3
    for region in regions:
        norm = math.sqrt(sum(value**2 for value in region))
        white = [
            sum(w * value / norm for w, value in zip(row, region, strict=True)) + b
            for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
        ]
        size = math.sqrt(sum(value**2 for value in white))
        total = [one + value / size for one, value in zip(total, white, strict=True)]
    size = math.sqrt(sum(value**2 for value in total))
    found = rmac(cells, mask)[0].tolist()
    assert found == pytest.approx([value / size for value in total], abs=1e-6)


def test_gains_compare_equal_seeds() -> None:
    name = board.PAPERS_TERMS[0]
    results = {
        pages.BASELINE: Tuned(seeds={1: {"recall sum": 300.0}, 2: {"recall sum": 310.0}}),
        name: Tuned(seeds={2: {"recall sum": 313.0}, 3: {"recall sum": 400.0}}),
    }
    assert pages.gains(results, name, pages.BASELINE) == [3.0]
    assert "| +3.0 | +3.0 | +3.0 |" in pages.gain_table(results, {name: pages.BASELINE})
    assert {pages.BASELINE, *board.PAPERS_TERMS} <= {row.name for row in ROWS}


def test_the_page_holds_trained_rows_and_names_the_others() -> None:
    measures: dict[str, Any] = dict.fromkeys(pages.PHOTOGRAPHS, 20.0)
    first, second = (
        measures | {"images": [20.0, 20.0]},
        measures | {"recall sum": 22.0, "images": [22.0, 22.0]},
    )
    results = {row.name: Tuned() for row in ROWS}
    results[ROWS[0].name] = Tuned({Trial(): 19.0}, Trial(), {1: first, 2: second})
    text = pages.photographs(PROTOCOL, ROWS, results)
    assert f"| {ROWS[0].name} |" in text
    assert "21.0 ± 1.4" in text
    (missing,) = (line for line in text.splitlines() if line.startswith("Not trained yet"))
    assert all(row.name in missing for row in ROWS[1:])


def test_a_row_without_a_training_keeps_its_lines_of_the_record() -> None:
    measures: dict[str, Any] = dict.fromkeys(pages.PHOTOGRAPHS, 20.0)
    first, second, third = (row.name for row in ROWS[:3])
    before = {row.name: Tuned() for row in ROWS}
    before[first] = Tuned({Trial(): 19.0}, Trial(), {1: measures})
    before[second] = Tuned({Trial(): 18.0}, Trial(), {1: measures})
    record = pages.photographs(PROTOCOL, ROWS, before)
    now = {row.name: Tuned() for row in ROWS}
    now[second] = Tuned({Trial(): 30.0}, Trial(), {1: measures | {"recall sum": 31.0}})
    now[third] = Tuned({Trial(): 32.0})
    text = pages.photographs(PROTOCOL, ROWS, now, record)
    assert f"Measured before this day: {first}.\n" in text
    kept = [line for line in record.splitlines() if line.startswith(f"| {first} |")]
    assert [line for line in text.splitlines() if line.startswith(f"| {first} |")] == kept
    changed = [line for line in text.splitlines() if line.startswith(f"| {second} |")]
    assert len(changed) == len(kept) == 2
    assert "31.0" in changed[0]
    assert "30.0" in changed[1]
    assert f"| {third} |" not in text
    (missing,) = (line for line in text.splitlines() if line.startswith("Not trained yet"))
    assert all((row.name in missing) == (row.name not in (first, second)) for row in ROWS[2:])


def test_a_record_of_another_protocol_keeps_no_line() -> None:
    measures: dict[str, Any] = dict.fromkeys(pages.PHOTOGRAPHS, 20.0)
    before = {row.name: Tuned() for row in ROWS}
    before[ROWS[0].name] = Tuned({Trial(): 19.0}, Trial(), {1: measures})
    record = pages.photographs("Protocol: 190 steps.", ROWS, before)
    now = {row.name: Tuned() for row in ROWS}
    text = pages.photographs(PROTOCOL, ROWS, now, record)
    assert f"| {ROWS[0].name} |" not in text
    assert "190 steps" not in text


def test_a_row_says_that_its_last_round_is_best_and_its_value_at_an_edge() -> None:
    tuned = Tuned(edges=["learning_rate"], unfinished=2, seeds={1: {}, 2: {}, 3: {}})
    assert pages.note(tuned) == "best in the last round: 2 of 3; at an edge: learning rate"
    assert pages.note(Tuned(seeds={1: {}})) == "-"
