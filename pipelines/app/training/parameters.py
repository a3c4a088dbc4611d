"""Parameters of ``bifocal train``."""

from pathlib import Path
from typing import Any

import click

from pipelines.app.run_folder import shipped_file
from pipelines.app.training.backbones import (
    DEMO_WARNING,
    demo_section,
    download_problem,
    features_section,
    find_networks,
)
from pipelines.app.training.pointing import with_pointing
from runtime import parameters
from runtime.s3.uri import is_remote


def training_parameters(
    directory: str, weights: Path | None, recipes: tuple[Path, ...], settings: tuple[str, ...]
) -> dict[str, Any]:
    """Return the parameters of a training on ``directory``, an absolute path or an address on S3."""
    networks = find_networks(weights)
    sentences = None if networks is None else networks.sentences
    own = shipped_file(f"recipes/own/{'images' if sentences is None else 'sentences'}.yaml")
    values = parameters.load(shipped_file("params.yaml"), [own])
    values["prepare_dataset"]["corpus"]["root"] = directory
    values["prepare_dataset"]["copy_images"] = is_remote(directory)  # later commands need no S3
    downloaded = values["extract_features"]
    if networks is not None:
        features = features_section(networks.backbone, downloaded["extractor"]["name"])
        values = parameters.merge(values, {"extract_features": features})
    if sentences is not None:
        vector = {"name": "SentenceVectors", "path": str(sentences.resolve())}
        values["vectorize_captions"]["vectorizer"]["vectorizers"][1] = vector
    for recipe in recipes:
        values = parameters.overlay(values, recipe)
    values = parameters.with_settings(values, settings)
    if values["extract_features"] == downloaded and (problem := download_problem(downloaded)) is not None:
        click.secho(DEMO_WARNING.format(problem=problem), fg="yellow", err=True)
        values = parameters.merge(values, {"extract_features": demo_section()})
    return with_pointing(values, networks)
