"""Every recipe overlays params.yaml with valid values, and every paper has a small twin on the scenes."""

from pathlib import Path

import pytest

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
        "smile",
        "bean",
        "bean_sodeep",
        "multi_level",
        "structure_preserving",
        "structure_preserving_phrases",
        "semantic",
        "semantic_visual",
    }
