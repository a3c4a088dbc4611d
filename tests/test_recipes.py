"""Every recipe overlays params.yaml with values that the stages take, and has its small twin."""

from pathlib import Path

import pytest

from components.parameters import read, stages, validate

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_valid(recipe: Path) -> None:
    sections = validate(read(ROOT / "params.yaml", [recipe]), stages().values())
    assert sections != validate(read(ROOT / "params.yaml"), stages().values())


def test_every_paper_has_its_recipes() -> None:
    names = {path.stem for path in RECIPES}
    assert names >= {
        "bean_coco",
        "bean_sodeep_coco",
        "multi_level_pnasnet_coco",
        "multi_level_vgg_coco",
        "semantic_visual_genome",
        "semantic_visual_genome_visual",
        "smile_coco",
        "smile_flickr30k",
        "structure_preserving_flickr30k_fisher",
        "structure_preserving_flickr30k_mean",
        "structure_preserving_flickr30k_phrases",
        "structure_preserving_flickr30k_tfidf",
    }
    for twin in (
        "smile",
        "bean",
        "bean_sodeep",
        "multi_level",
        "structure_preserving",
        "structure_preserving_phrases",
        "semantic",
        "semantic_visual",
    ):
        assert f"scenes_{twin}" in names
