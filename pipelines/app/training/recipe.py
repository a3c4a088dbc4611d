"""Parameters of ``bifocal train``: a recipe of ``recipes/own``, the paths of this machine, and the
user's values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from bifocal.datasets.corpora import ImageFolder
from bifocal.onnx.image_limits import max_pixels
from bifocal.registry import build
from pipelines.app.encoders import SENTENCES, SMALL, small_networks, torch_encoder
from pipelines.app.inspect import check_count
from pipelines.app.run_folder import shipped_file
from pipelines.app.stages import check_stages, stages_of_run
from pipelines.app.training.networks import (
    Networks,
    demo_section,
    features_section,
    find_networks,
    pointing_section,
    recognize,
)
from runtime import parameters
from runtime.s3.uri import is_remote

MANY, LAST_LAYERS = 3000, "tf_efficientnet_lite2"
"""Images with captions from which the last layers of this backbone train: better from 3,000 on,
equal at 1,000."""
POINTING = {"name": "ClassMixture", "model": SENTENCES}
"""Pointing head of the recipes."""
DEMO_WARNING = (
    "warning: {problem}\nThe backbone of 'bifocal demo' takes its place. It knows 1,400 drawn "
    "scenes: it tells colors, textures and shapes apart, and recognizes nothing in "
    "photographs. Expect results far below the results with ImageNet weights."
)


class Training(NamedTuple):
    """Parameters of a training, and the recipe that they come from, with the reasons of its
    choice."""

    values: dict[str, Any]
    recipe: Path
    reasons: str


def choose_recipe(
    encoder: str | None, networks: Networks | None, count: int | None, *, last_layers: bool
) -> Path:
    """Return the recipe for a contrastive encoder, or for the networks at hand and a number of
    photographs.

    From ``MANY`` images on, the last layers of an EfficientNet-Lite2 train too, if ``last_layers``.
    """
    if encoder not in (None, SMALL):
        name = "clip"
    elif networks is None or networks.sentences is None:
        name = "images"
    else:
        many = last_layers and (count or 0) >= MANY and recognize(networks.backbone) == LAST_LAYERS
        name = "many" if many else "sentences"
    return shipped_file(f"recipes/own/{name}.yaml")


def compose(
    directory: str,
    weights: Path | None,
    recipes: Sequence[Path],
    settings: Sequence[str],
    encoder: str | None = None,
    *,
    last_layers: bool = True,
) -> Training:
    """Return the parameters of a training on ``directory``, an absolute path or an address on S3.

    ``encoder`` names a contrastive model to train heads on, or "small" for a backbone and a
    sentence encoder; None for "small", without a sentence encoder if ``weights`` has only a
    backbone, and without both if none are at hand.
    """
    given = _overlaid(
        {"prepare_dataset": {"corpus": {"name": "ImageFolder", "root": directory}}},
        recipes,
        settings,
    )
    count = count_captioned(given["prepare_dataset"])  # before a download is tried
    networks, problem = _networks(
        encoder, weights, has_features=_has_backbone(given.get("extract_features", {}))
    )
    recipe = choose_recipe(encoder, networks, count, last_layers=last_layers)
    values = parameters.load(shipped_file("params.yaml"), [recipe])
    limit = {"max_pixels": max_pixels()}
    own: dict[str, Any] = {
        # Later commands need no S3.
        "prepare_dataset": {
            "corpus": {"root": directory},
            "copy_images": is_remote(directory),
            **limit,
        },
        "embed_collection": limit,
    }
    if encoder not in (None, SMALL):
        own |= _contrastive_sections(str(encoder), weights)
    if networks is not None:
        own["extract_features"] = features_section(
            networks.backbone, values["extract_features"]["extractor"]["name"]
        )
    if networks is not None and networks.sentences is not None:
        vector = {"name": "SentenceVectors", "path": str(networks.sentences.resolve())}
        own["vectorize_captions"] = {"vectorizer": {"vectorizers": {1: vector}}}
    values = _overlaid(parameters.merge(values, own), recipes, settings)
    if recipes or settings:
        check_stages(values, stages_of_run())
    used = f"encoder {encoder}" if recipe.stem == "clip" else "small encoders"
    if "extract_features" in given:
        used = "features of your own"
    elif recipe.stem == "images" and networks is not None:
        used = f"backbone {networks.backbone.name}"
    if problem is not None:
        click.secho(DEMO_WARNING.format(problem=problem), fg="yellow", err=True)
        values = _overlaid(
            parameters.merge(values, {"extract_features": demo_section()}), recipes, settings
        )
        used = "backbone of 'bifocal demo'"
    photographs = "photographs" if count is None else f"{count:,} photographs"
    return Training(fit_pointing(values, networks), recipe, f"{photographs} with captions, {used}")


def portable_training(directory: str) -> Training:
    """Return the parameters of a training by networks that other machines download: no path but
    ``directory``."""
    corpus = {"name": "ImageFolder", "root": directory}
    count = count_captioned({"corpus": corpus}) or 0
    recipe = shipped_file(f"recipes/own/{'many' if count >= MANY else 'sentences'}.yaml")
    values = parameters.merge(
        parameters.load(shipped_file("params.yaml"), [recipe]),
        {"prepare_dataset": {"corpus": corpus}},
    )
    return Training(values, recipe, f"{count:,} photographs with captions, small encoders")


def _has_backbone(section: Mapping[str, Any]) -> bool:
    """Return whether a section ``extract_features`` of the user names features of its own, not only
    a size."""
    extractor = section.get("extractor", {})
    return (
        "weights" in section
        or not isinstance(extractor, Mapping)
        or not {"name", "backbone"}.isdisjoint(extractor)
    )


def _networks(
    encoder: str | None, weights: Path | None, *, has_features: bool
) -> tuple[Networks | None, FileNotFoundError | None]:
    """Return the networks of a training, and why it has none and takes the backbone of 'bifocal
    demo'.

    Args:
        has_features: whether the user's parameters name a backbone, so that no other one is needed.
    """
    if encoder not in (None, SMALL):
        return None, None
    networks = find_networks(weights)
    if networks is None and (encoder == SMALL or not has_features):
        try:
            networks = find_networks(small_networks())
        except FileNotFoundError as error:
            if encoder == SMALL:
                raise
            return None, error
    if encoder == SMALL and (networks is None or networks.sentences is None):
        raise ValueError(
            f"{weights} has no sentence encoder, which the encoder small needs: name a folder "
            "with the weights of EfficientNet-Lite2 and the folder of all-MiniLM-L6-v2"
        )
    return networks, None


def _contrastive_sections(encoder: str, weights: Path | None) -> dict[str, Any]:
    """Return the parameters that put a contrastive model in the place of the one in
    ``recipes/own/clip.yaml``."""
    from bifocal.backbones.open_clip import OpenClipBackbone

    name, file = torch_encoder(encoder, weights)
    named = {"model": name, "tag": None}
    return {
        "extract_features": {
            "extractor": named,
            "weights": {"name": "FromFile", "path": str(file)},
        },
        "vectorize_captions": {"vectorizer": {**named, "path": str(file)}},
        "train_embedding": {"model": {"dim": OpenClipBackbone(name, None).dim}},
    }


def fit_pointing(values: dict[str, Any], networks: Networks | None) -> dict[str, Any]:
    """Return the parameters with the recipe's pointing head as far as the networks at hand allow
    it.

    Without a classifier of the backbone, or with a localizer, there is none; without a sentence
    encoder, it compares words. The report shows the head that is exported.
    """
    extractor, export = values["extract_features"]["extractor"], values["export_onnx"]
    head, shown = export.get("pointing"), {"name": "BackbonePointing", "head": POINTING}
    if head == POINTING:
        has_classifier = isinstance(extractor, dict) and (
            extractor.get("classes") or extractor.get("classifier")
        )
        fits = has_classifier and not export.get("localizer")
        head = (
            (_downloaded_pointing() if networks is None else pointing_section(networks))
            if fits
            else None
        )
    evaluators = [
        ref for ref in values["evaluate"]["evaluators"] if ref != shown or head is not None
    ]
    evaluators = [{**shown, "head": head} if ref == shown else ref for ref in evaluators]
    return parameters.merge(
        values, {"export_onnx": {"pointing": head}, "evaluate": {"evaluators": evaluators}}
    )


def _downloaded_pointing() -> dict[str, Any]:
    from bifocal.text.transformer.folder import find_folder

    try:
        find_folder(SENTENCES, None)
    except FileNotFoundError:
        return {"name": "ClassMixture"}
    return POINTING


def count_captioned(section: Any) -> int | None:
    """Return the images with captions of the folder of ``prepare_dataset``; None if they are not
    counted, as on S3.

    Raises:
        ValueError: they are too few; archives are not opened.
    """
    corpus = section.get("corpus") if isinstance(section, Mapping) else None
    if isinstance(corpus, Mapping) and corpus.get("name") == ImageFolder.__name__:
        root = str(corpus.get("root"))
        if Path(root).is_dir():
            return check_count(root, build("bifocal.datasets.corpora", corpus))
    return None


def _overlaid(
    values: dict[str, Any], recipes: Sequence[Path], settings: Sequence[str]
) -> dict[str, Any]:
    for recipe in recipes:
        values = parameters.overlay(values, recipe)
    return parameters.with_settings(values, settings)
