"""Every recipe overlays params.yaml with valid values, and every paper has a small twin on the
scenes."""

from pathlib import Path

import pytest
import yaml

from components.catalog import configurable_components
from runtime.parameters import load, validate
from runtime.spec import Params

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


@pytest.fixture(scope="module")
def default() -> dict[str, Params]:
    return validate(load(ROOT / "params.yaml"), configurable_components().values())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recipe_is_valid(recipe: Path, default: dict[str, Params]) -> None:
    sections = validate(load(ROOT / "params.yaml", [recipe]), configurable_components().values())
    assert list(sections) == list(configurable_components())
    assert sections != default


def test_every_paper_has_its_recipes() -> None:
    papers = {path.stem for path in RECIPES if path.parent.name == "papers"}
    assert papers >= {
        "bean_coco",
        "bean_sodeep_coco",
        "multi_level_pnasnet_coco",
        "multi_level_vgg_coco",
        "semantic_visual_genome",
        "semantic_visual_genome_ordered",
        "semantic_visual_genome_untrained",
        "semantic_visual_genome_visual",
        "semantic_visual_genome_wsabie",
        "smile_coco",
        "smile_flickr30k",
        "structure_preserving_flickr30k_fisher",
        "structure_preserving_flickr30k_mean",
        "structure_preserving_flickr30k_phrases",
        "structure_preserving_flickr30k_tfidf",
    }
    scenes = {path.stem for path in RECIPES if path.parent.name == "scenes"}
    assert scenes >= {
        "smile_infonce",
        "bean_infonce",
        "bean_sodeep_infonce",
        "multi_level",
        "structure_preserving",
        "structure_preserving_phrases",
        "semantic",
        "semantic_visual",
    }


LOSSES = {
    "smile": {"HardestTripletLoss"},
    "bean": {"HardestTripletLoss"},
    "bean_sodeep": {"RecallLoss"},
    "multi_level": {"GroundingLoss"},
    "structure_preserving": {"StructurePreservingLoss"},
    "semantic": {"SemanticTripletLoss"},
    "wsabie": {"StructurePreservingLoss"},
    "cca": set[str](),
}
"""Losses of the papers by the first words of a recipe's name; the last word "infonce" adds
InfoNCE."""


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_with_the_name_of_a_system_has_its_loss(recipe: Path) -> None:
    values = yaml.safe_load(recipe.read_text())
    phases = values.get("train_embedding", {}).get("phases", [])
    systems = [name for name in LOSSES if f"{recipe.stem}_".startswith(f"{name}_")]
    if phases and systems:
        parts = [part for phase in phases for part in phase["loss"].get("losses", [phase["loss"]])]
        added = {"InfoNCELoss"} if recipe.stem.endswith("_infonce") else set()
        assert {part["name"] for part in parts} == LOSSES[max(systems, key=len)] | added
