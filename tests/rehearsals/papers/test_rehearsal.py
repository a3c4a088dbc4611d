"""Rehearsals: a short rehearsal of one recipe, the table of all recipes, the rule for "learned"."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from components.catalog import configurable_components
from runtime.parameters import validate
from tests.rehearsals.papers.data import named_data, write_data
from tests.rehearsals.papers.measures import Measure, measure
from tests.rehearsals.papers.outcome import Outcome, check, not_learned, phase_losses, risen
from tests.rehearsals.papers.report import BEGIN, END, NOT_LEARNED, markdown_table, write_into
from tests.rehearsals.papers.stages import ROOT, Run, enter
from tests.rehearsals.papers.table import Rehearsal, load_table

RECIPES = sorted(path.stem for path in (ROOT / "recipes" / "papers").glob("*.yaml"))
SHORT = {
    "train_embedding.phases.0.epochs": 4,
    "train_embedding.phases.0.schedule": {"name": "Constant"},
}


def test_every_recipe_has_a_row_that_changes_neither_loss_nor_corpus(tmp_path: Path) -> None:
    table = load_table()
    assert sorted(table) == RECIPES
    for name, rehearsal in table.items():
        published, shortened = (
            Run(f"papers/{name}", settings, tmp_path).values for settings in ({}, rehearsal.set)
        )
        validate(shortened, configurable_components().values())
        losses = [
            [phase["loss"] for phase in values["train_embedding"]["phases"]]
            for values in (published, shortened)
        ]
        assert losses[0] == losses[1], name
        batches = [phase["batches"]["name"] for phase in published["train_embedding"]["phases"]]
        assert rehearsal.mines == ("MinedTriplets" in batches), name
        corpora = [values["prepare_dataset"]["corpus"] for values in (published, shortened)]
        assert [corpora[0].get(key) for key in ("name", "root")] == [
            corpora[1].get(key) for key in ("name", "root")
        ], name


def test_smile_on_flickr30k_learns(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the working directory is restored after the test
    rehearsal = load_table()["smile_flickr30k"]
    run = Run("papers/smile_flickr30k", rehearsal.set | SHORT, tmp_path)
    for name in named_data(run.values):
        write_data(name, tmp_path / "data")
    enter(tmp_path)
    run.run()
    outcome = check("smile_flickr30k", rehearsal, run.folders, run.seconds())
    assert outcome.problems == []
    assert (
        json.loads((run.folders["registration"] / "registration.json").read_text())["version"] == 1
    )
    metrics = json.loads((run.folders["metrics"] / "metrics.json").read_text())
    assert measure("semantic.NDCG_area", run.folders).value == pytest.approx(
        metrics["semantic"]["NDCG_area"], abs=1e-3
    )
    assert measure("semantic.above_random", run.folders).value == pytest.approx(
        metrics["semantic"]["NDCG_area"] - metrics["semantic"]["chance"]["NDCG_area"], abs=1e-3
    )
    assert measure("semantic.gain", run.folders | {"baseline": run.folders["embedding"]}) == (
        0.0,
        0.0,
        0.0,
    )
    linked = (
        tmp_path / "checkout" / "runs" / "papers" / "smile_flickr30k" / "artifacts" / "embedding"
    )
    assert linked.resolve() == run.folders["embedding"].resolve()
    # A variant that differs only in its training shares the stages before it.
    variant = Run(
        "papers/smile_flickr30k",
        rehearsal.set | SHORT | {"train_embedding.model.dim": 64},
        tmp_path,
    )
    variant.run(before="train_embedding")
    assert {name: variant.folders[name] for name in variant.folders} == {
        name: run.folders[name] for name in variant.folders
    }


@pytest.mark.parametrize(
    ("low", "bar", "expected"), [(3.1, None, True), (3.0, None, False), (3.1, 4.0, False)]
)
def test_learned_is_above_three_times_chance_or_the_bar(
    low: float, bar: float | None, expected: bool
) -> None:
    measure = Measure(9.0, low, 1.0)
    assert (
        not list(not_learned({"a": measure}, {"a": measure.bar if bar is None else bar}))
    ) is expected


def test_a_stated_bar_only_raises_three_times_chance(tmp_path: Path) -> None:
    values = {"accuracy": 40.0, "low": 35.0, "random": 13.0, "centre": 25.0}
    (tmp_path / "metrics.json").write_text(json.dumps({"pointing": values}))
    folders = {"metrics": tmp_path}
    for stated, expected in ((5.0, 39.0), (60.0, 60.0)):
        row = Rehearsal(
            headline="pointing.accuracy",
            learned=("pointing.accuracy",),
            bars={"pointing.accuracy": stated},
        )
        assert check("recipe", row, folders, seconds=0.0).bars == {"pointing.accuracy": expected}


def test_losses_are_compared_within_a_phase() -> None:
    history = pd.DataFrame({"phase": [0, 0, 0, 1, 1, 2], "loss": [None, 3.0, 1.0, 2.0, 2.5, 9.0]})
    assert phase_losses(history) == [(3.0, 1.0), (2.0, 2.5)]
    assert list(risen(phase_losses(history))) == ["the loss of phase 1 goes from 2 to 2.5"]


def test_the_table_replaces_the_previous_one(tmp_path: Path) -> None:
    page = tmp_path / "papers.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    outcome = Outcome(
        "bean_coco",
        "pointing.accuracy",
        {"pointing.accuracy": Measure(50.0, 40.0, 10.0)},
        {"pointing.accuracy": 30.0},
        [(2.0, 1.0)],
    )
    for _ in range(2):
        write_into(page, [outcome])
    text = page.read_text()
    assert (
        "| bean_coco | pointing.accuracy | 50.0 | 40.0 | 10.0 | pointing.accuracy 40.0 > 30.0 "
        "| 2 to 1 | - | 0.0 |" in markdown_table([outcome])
    )
    assert text.count("bean_coco") == 1
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")


@pytest.mark.parametrize(
    ("low", "problems", "cell"), [(40.0, [], "a 40.0 > 30.0"), (30.0, ["a"], "a 30.0 ≤ 30.0")]
)
def test_a_recipe_that_has_not_learned_says_so(low: float, problems: list[str], cell: str) -> None:
    outcome = Outcome(
        "recipe", "a", {"a": Measure(50.0, low, 10.0)}, {"a": 30.0}, problems=problems
    )
    assert f"| {NOT_LEARNED if problems else ''}{cell} |" in markdown_table([outcome])
    assert f"| {NOT_LEARNED}an error |" in markdown_table(
        [Outcome("recipe", "a", problems=["ValueError"])]
    )


def test_the_table_of_the_documents_has_every_recipe_and_its_bars() -> None:
    text = (ROOT / "docs" / "records" / "rehearsal.md").read_text()
    table = re.findall(
        r"^\| (\w+) \|(.*)\|$", text[text.index(BEGIN) : text.index(END)], re.MULTILINE
    )
    rows = {
        recipe: [cell.strip() for cell in cells.split("|")]
        for recipe, cells in table
        if recipe != "recipe"
    }
    assert sorted(rows) == RECIPES, "run 'make rehearse'"
    for recipe, rehearsal in load_table().items():
        headline, _, _, _, learned, *_ = rows[recipe]
        comparisons = re.findall(r"([\w.@]+) (-?[\d.]+) (>|≤) ([\d.]+)", learned)
        assert headline == rehearsal.headline, recipe
        assert learned == f"{NOT_LEARNED}an error" or [name for name, *_ in comparisons] == [
            *rehearsal.learned
        ], recipe
        above = all(sign == ">" for _, _, sign, _ in comparisons)
        assert above or learned.startswith(NOT_LEARNED), recipe
        for name, _, _, bar in comparisons:
            assert float(bar) >= rehearsal.bars.get(name, 0.0), recipe
