"""Recipes of published data on a cluster: their folders outside the repository become s3://
addresses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.catalog import pipeline_components
from runtime import parameters
from runtime.parameters import ParameterError
from tests.pipelines.compiled import ROOT, VALUES, compile_text

RECIPES = sorted(
    [*(ROOT / "recipes" / "papers").glob("*.yaml"), *(ROOT / "recipes" / "flickr8k").glob("*.yaml")]
)


def user_paths(values: dict[str, Any]) -> dict[tuple[str, ...], str]:
    """User paths of all stages by section and location."""
    return {
        (stage.name, *map(str, location)): path
        for stage in pipeline_components(values["pipeline"])
        for location, path in stage.user_paths(values[stage.name]).items()
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_of_published_data_compiles_with_s3_addresses(recipe: Path) -> None:
    local = user_paths(parameters.load(ROOT / "params.yaml", [recipe]))
    assert local
    settings = [
        f"{'.'.join(where)}=s3://corpora/{path.lstrip('./')}" for where, path in local.items()
    ]
    values = parameters.load(ROOT / "params.yaml", [recipe], settings)
    assert not values["prepare_dataset"]["copy_images"]
    pipeline, *_ = yaml.load_all(compile_text(values, push=False), Loader=yaml.CSafeLoader)
    tasks = pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    section = json.loads(
        tasks["fingerprint"]["inputs"]["parameters"]["parameters"]["runtimeValue"]["constant"]
    )
    sources = section["fingerprint"]["sources"].values()
    assert {path for paths in sources for path in paths} == set(user_paths(values).values())
    assert "fetch" not in tasks


@pytest.mark.parametrize("recipe", RECIPES[:2], ids=lambda path: path.stem)
def test_recipe_of_published_data_on_this_machine_is_refused(recipe: Path) -> None:
    with pytest.raises(
        ParameterError, match=r"copy_images is false, so .* which other machines do not have"
    ):
        compile_text(parameters.load(ROOT / "params.yaml", [recipe]))


@pytest.mark.parametrize("root", ["data/flickr8k", "/data/flickr8k"])
def test_dataset_that_refers_to_files_of_one_machine_is_refused(root: str) -> None:
    section = {"corpus": {"name": "Flickr8k", "root": root}, "copy_images": False}
    with pytest.raises(
        ParameterError, match=rf"below {root}, .* set copy_images: true, or name an s3:// address"
    ):
        compile_text(parameters.merge(VALUES, {"prepare_dataset": section}))
