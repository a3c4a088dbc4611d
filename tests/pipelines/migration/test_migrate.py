"""The parameters of versions 0.1 and 0.2, as their commits had them, become parameters of this version."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bifocal.registry import accepts, registered
from components.catalog import configurable_components
from pipelines.migration.changes import Converted, RemovedArgument, Renamed, RenamedArgument, RenamedPart
from pipelines.migration.migrate import _comments, migrate
from pipelines.migration.table import TABLE
from runtime import parameters

ROOT = Path(__file__).parents[3]
VERSIONS = Path(__file__).parent / "versions"
FILES = sorted(VERSIONS.rglob("*.yaml"))
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))
PACKAGES = (
    "bifocal.datasets.corpora", "bifocal.features.extractors", "bifocal.text.vectorizers", "bifocal.sorters",
    "bifocal.losses", "bifocal.image_encoders", "bifocal.text_encoders", "bifocal.localization",
    "bifocal.ranking_heads",
)  # fmt: skip
EXPLICIT_DEFAULTS = [
    ("centers", 30), ("extra_captions_per_image", 0), ("ks", [1, 5, 10]), ("mixture", "hglmm"), ("validator", None)
]  # fmt: skip
"""Defaults that one of two files states and the other leaves out."""


@cache
def base() -> dict[str, Any]:
    return parameters.load(ROOT / "params.yaml")


def resolved(text: str) -> dict[str, Any]:
    """Return the migrated values, for a recipe on top of the present params.yaml."""
    result = migrate(text)
    values: dict[str, Any] = yaml.safe_load(result.text)
    return values if result.complete else parameters.merge(base(), values)


def normalized(value: Any) -> Any:
    """Return parts without arguments as bare names, and values without stated defaults."""
    if isinstance(value, dict):
        if set(value) == {"name"}:
            return value["name"]
        kept = {key: entry for key, entry in value.items() if (key, entry) not in EXPLICIT_DEFAULTS}
        return {key: normalized(entry) for key, entry in kept.items()}
    return [normalized(entry) for entry in value] if isinstance(value, list) else value


def name_of(path: Path) -> str:
    return path.relative_to(VERSIONS).with_suffix("").as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_former_file_is_accepted(path: Path) -> None:
    text = path.read_text()
    parameters.validate(resolved(text), configurable_components().values())
    again = migrate(migrate(text).text)
    assert (again.done, again.text) == ([], migrate(text).text)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_comment_is_kept(path: Path) -> None:
    text = path.read_text()
    before, after = ([comment for _, comment in _comments(source)] for source in (text, migrate(text).text))
    assert sorted(before) == sorted(after)


@pytest.mark.parametrize("path", [path for path in FILES if path.is_relative_to(VERSIONS / "0.1")], ids=name_of)
def test_parameters_equal_those_that_version_0_2_wrote_by_hand(path: Path) -> None:
    by_hand = next(
        other
        for name in (path.name, f"papers_{path.name}")
        for other in [VERSIONS / "0.2" / path.relative_to(VERSIONS / "0.1").with_name(name)]
        if other.is_file()
    )
    assert normalized(resolved(path.read_text())) == normalized(resolved(by_hand.read_text()))


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *RECIPES], ids=lambda path: path.stem)
def test_present_file_is_unchanged(path: Path) -> None:
    text = path.read_text()
    assert migrate(text).text == text


def test_complete_file_has_the_sections_of_this_version() -> None:
    for version in ("0.1", "0.2"):
        result = migrate((VERSIONS / version / "params.yaml").read_text())
        assert result.complete
        assert yaml.safe_load(result.text).keys() == base().keys()
        assert list(yaml.safe_load(result.text))[:2] == ["seed", "pipeline"]


def test_table_covers_the_former_keys_of_the_stages() -> None:
    covered = {change.key for change in TABLE if isinstance(change, Renamed)}
    covered |= {key for change in TABLE if isinstance(change, Converted) for key in change.keys}
    former = {f"{name}.{key}" for name, stage in configurable_components().items() for key in stage.former_keys}
    assert former <= covered


def test_new_names_of_parts_and_arguments_exist() -> None:
    parts = {name: package for package in PACKAGES for name in registered(package)}
    removed = {(change.part, change.argument) for change in TABLE if isinstance(change, RemovedArgument)}
    for change in TABLE:
        if isinstance(change, RenamedPart):
            assert change.now in parts
            assert change.part not in parts
        if isinstance(change, RenamedArgument) and (change.part, change.now) not in removed:
            assert accepts(parts[change.part], change.part, change.now), change
        if isinstance(change, RenamedArgument | RemovedArgument):
            assert not accepts(parts[change.part], change.part, change.argument), change


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    yield (
        "extract_features: {classifier: {task: null, maps: 8, random_start: true}, source: ../imagenet}",
        {"weights": {"name": "TrainClassifier", "task": None, "maps": 8, "start": None, "path": "../imagenet"}},
    )
    yield (
        "extract_features: {weights: w.safetensors, classifier: {task: shapes, maps: 8, random_start: false}}",
        {
            "weights": {
                "name": "TrainClassifier", "task": "shapes", "maps": 8,
                "start": {"name": "FromFile", "path": "w.safetensors"},
            }
        },
    )  # fmt: skip
    yield (
        "extract_features: {pretraining: {epochs: 4, scene_weight: 0.1}}",
        {"weights": {"epochs": 4, "image_word_weight": 0.1}},
    )
    yield "extract_features: {weights: TrainOnPhrases}", {"weights": "TrainOnPhrases"}
    yield "train_embedding: {decay_after: [2]}", {"phases": {0: {"schedule": {"milestones": [2]}}}}
    yield (
        "train_embedding: {train_from: {text_encoder: 5}, fine_tune_words: false}",
        {"phases": {0: {"frozen_until": {"text_encoder": 5, "word_embedding": None}}}},
    )
    yield (
        "train_embedding: {distinct_images: true}",
        {"phases": {0: {"batches": {"name": "DistinctImageBatches", "batch_size": 320}}}},
    )
    yield "pretrain_sorter: {sorter: {name: PairwiseSorter}, halve_every: 3}", {
        "sorter": {"name": "PairwiseSorter"}, "training": None
    }  # fmt: skip
    yield "evaluate: {pointing: null, recall_at: [1]}", {
        "evaluators": [
            {"name": "Retrieval", "protocol": "full", "ks": [1]}, "PhraseLocalization", "ObjectLocalization",
            "SemanticRetrieval", "TextModifiers", "SimilarImages", "DataQuality",
        ]
    }  # fmt: skip
    yield "evaluate: {champion: null}", {}
    yield (
        "train_embedding: {image_encoder: {name: RMacEncoder, side_of_graph: 64, scales: 2}}",
        {"model": {"image_encoder": {"name": "RMACEncoder", "scales": 2}}},
    )


@pytest.mark.parametrize(("text", "expected"), list(cases()))
def test_values_that_another_value_replaces(text: str, expected: dict[str, Any]) -> None:
    ((_, section),) = yaml.safe_load(migrate(text).text).items()
    assert section == expected


def test_values_without_a_successor_are_noted() -> None:
    result = migrate("train_embedding: {checkpoint_every: 20}\nevaluate: {champion: model@best, unknown: 3}\n")
    assert any("every 20 steps" in note for note in result.notes)
    assert any("model@best" in note for note in result.notes)
    assert yaml.safe_load(result.text)["evaluate"] == {"unknown": 3}


def test_comment_of_a_removed_key_moves_to_its_section() -> None:
    text = "# a file\ntrain_embedding:\n  dim: 8\n  # as few as the memory holds\n  checkpoint_every: 20  # steps\n"
    lines = migrate(text).text.splitlines()
    assert lines[0] == "# a file"
    assert {"# as few as the memory holds", "# steps"} <= {line.strip() for line in lines}


@pytest.mark.parametrize(("text", "message"), [("a: [", "not YAML"), ("3", "expected sections"), ("", "expected sect")])
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        migrate(text)
