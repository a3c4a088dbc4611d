"""Parameters of ``bifocal train``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from components.catalog import configurable_components
from pipelines.app.encoders import download_small
from pipelines.app.run_folder import shipped_file
from pipelines.app.training.backbones import (
    DEMO_WARNING,
    demo_section,
    download_problem,
    features_section,
    find_networks,
    recognize,
)
from pipelines.app.training.captions import check_captions
from pipelines.app.training.contrastive import SMALL, contrastive_sections
from pipelines.app.training.pointing import with_pointing
from runtime import parameters
from runtime.s3.uri import is_remote

MANY, LAST_LAYERS = 3000, "tf_efficientnet_lite2"
"""Images with captions from which the last layers of this backbone train: better from 3,000 on, equal at 1,000."""


def training_parameters(
    directory: str,
    weights: Path | None,
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
    encoder: str | None = None,
    *,
    last_layers: bool = True,
) -> dict[str, Any]:
    """Return the parameters of a training on ``directory``, an absolute path or an address on S3.

    ``encoder`` names a contrastive model to train heads on, or "small" for a backbone and a sentence encoder; None for
    the same if ``weights`` has both, else for a backbone. From ``MANY`` images on, the last layers of an
    EfficientNet-Lite2 train too, if ``last_layers``.
    """
    corpus = {"prepare_dataset": {"corpus": {"name": "ImageFolder", "root": directory}}}
    count = check_captions(_overlaid(corpus, recipes, settings)["prepare_dataset"])  # before a download is tried
    contrastive = {} if encoder in (None, SMALL) else contrastive_sections(str(encoder), weights)
    networks = None if contrastive else find_networks(weights)
    if networks is None and encoder == SMALL:
        networks = find_networks(download_small())
    if encoder == SMALL and (networks is None or networks.sentences is None):
        raise ValueError(
            f"{weights} has no sentence encoder, which the encoder small needs: name a folder with the weights of "
            "EfficientNet-Lite2 and the folder of all-MiniLM-L6-v2"
        )
    sentences = None if networks is None else networks.sentences
    name = "clip" if contrastive else "images" if sentences is None else "sentences"
    if networks is not None and sentences is not None and last_layers and (count or 0) >= MANY:
        name = "many" if recognize(networks.backbone) == LAST_LAYERS else name
    values = parameters.load(shipped_file("params.yaml"), [shipped_file(f"recipes/own/{name}.yaml")])
    values = parameters.merge(values, contrastive)
    values["prepare_dataset"]["corpus"]["root"] = directory
    values["prepare_dataset"]["copy_images"] = is_remote(directory)  # later commands need no S3
    downloaded = values["extract_features"]
    if networks is not None:
        features = features_section(networks.backbone, downloaded["extractor"]["name"])
        values = parameters.merge(values, {"extract_features": features})
    if sentences is not None:
        vector = {"name": "SentenceVectors", "path": str(sentences.resolve())}
        values["vectorize_captions"]["vectorizer"]["vectorizers"][1] = vector
    values = _overlaid(values, recipes, settings)
    parameters.validate(values, configurable_components().values())  # before a download is tried
    if (
        not contrastive
        and values["extract_features"] == downloaded
        and (problem := download_problem(downloaded)) is not None
    ):
        click.secho(DEMO_WARNING.format(problem=problem), fg="yellow", err=True)
        values = parameters.merge(values, {"extract_features": demo_section()})
    return with_pointing(values, networks)


def _overlaid(values: dict[str, Any], recipes: Sequence[Path], settings: Sequence[str]) -> dict[str, Any]:
    for recipe in recipes:
        values = parameters.overlay(values, recipe)
    return parameters.with_settings(values, settings)
