"""Parameters of ``bifocal train``: a recipe of ``recipes/own``, the files of this machine, and the
user's values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from bifocal.backbones.networks import (
    SENTENCES,
    Networks,
    is_backbone,
    named_networks,
)
from bifocal.datasets.corpora import ImageFolder
from bifocal.onnx.image_limits import max_pixels
from bifocal.registry import build
from pipelines.app.demo import BACKBONE, RECIPE, SHIPPED
from pipelines.app.encoders import SMALL, small_at_hand, torch_encoder
from pipelines.app.run_folder import shipped_file
from pipelines.app.stages import check_stages, stages_of_run
from runtime import parameters
from runtime.s3.uri import is_remote

MANY = 3000
"""Images with captions from which the last layers train: better from 3,000 on, equal at 1,000."""
DEMO_SIZE = 224
"""Pixels of a photograph's side for the backbone of ``bifocal demo``."""
DEMO_WARNING = (
    "warning: {problem}\nThe backbone of 'bifocal demo' takes its place. It knows 1,400 drawn "
    "scenes: it tells colors, textures and shapes apart, and recognizes nothing in photographs. "
    "Expect results far below the results with ImageNet weights."
)


class Training(NamedTuple):
    """Parameters of a training, and the recipe that they come from, with the reasons of its
    choice."""

    values: dict[str, Any]
    recipe: Path
    reasons: str


def compose(
    directory: str,
    weights: Path | None,
    recipes: Sequence[Path],
    settings: Sequence[str],
    encoder: str | None = None,
    *,
    last_layers: bool = True,
    is_here: bool = True,
) -> Training:
    """Return the parameters of a training on ``directory``, an absolute path or an address on S3.

    Args:
        weights: file or folder of the networks of small, or of a contrastive model.
        encoder: name of a contrastive model to train heads on, or "small"; None for "small",
            without a sentence encoder if ``weights`` has only a backbone, and without both if none
            are at hand.
        last_layers: whether the last layers may train; they need the image size of the recipe.
        is_here: whether this machine trains; others find the networks of small by their names.
    """
    user = parameters.layers(recipes, settings)
    count = count_captioned(directory, user)  # before a download is tried
    has_features = any(map(_names_features, parameters.stated(user, "extract_features")))
    choice, warning = choose(count, encoder, weights, last_layers, has_features, is_here)
    source = {"corpus": {"root": directory}, "copy_images": is_remote(directory)}
    limit = {"max_pixels": max_pixels()}
    sections = {"prepare_dataset": source | limit, "embed_collection": limit}
    own = parameters.merge(choice.values, sections)
    values, note = fit_head(parameters.overlay(own, user), own)
    check_weights(values, own)
    if user:
        check_stages(values, stages_of_run())
    if warning:
        click.secho(warning, fg="yellow", err=True)
    photographs = "photographs" if count is None else f"{count:,} photographs"
    return Training(values, choice.recipe, f"{photographs} with captions, {choice.reasons}{note}")


def choose(
    count: int | None,
    encoder: str | None,
    weights: Path | None,
    last_layers: bool,
    has_features: bool,
    is_here: bool,
) -> tuple[Training, str]:
    """Return the recipe for the networks at hand and a number of photographs, see ``compose``, and
    a warning if none are at hand.

    ``has_features``: whether the user's parameters name a backbone, so that no other one is needed.
    """

    def of(name: str, reason: str, files: Mapping[str, Any] | None = None) -> tuple[Training, str]:
        recipe = shipped_file(f"recipes/own/{name}.yaml")
        values = parameters.load(shipped_file("params.yaml"), [recipe])
        return Training(parameters.merge(values, files or {}), recipe, reason), ""

    if encoder not in (None, SMALL):
        return of("clip", f"encoder {encoder}", _contrastive_sections(str(encoder), weights))
    networks = named_networks(weights) if is_here else None
    reason = "features of your own" if has_features else "small encoders"
    if networks is None and is_here:
        if has_features and encoder is None:
            return of("images", reason)
        try:
            small_at_hand(None)  # their names in the recipe find them again
        except FileNotFoundError as error:
            if encoder == SMALL:
                raise
            files = {"extract_features": demo_section()}
            choice, _ = of("images", "backbone of 'bifocal demo'", files)
            return choice, DEMO_WARNING.format(problem=error)
    if networks is not None and networks.sentences is None:
        if encoder == SMALL:
            raise ValueError(
                f"{weights} has no sentence encoder, which the encoder small needs: name a folder "
                "with the weights of EfficientNet-Lite2 and the folder of all-MiniLM-L6-v2"
            )
        reason = reason if has_features else f"backbone {networks.backbone.name}"
        return of("images", reason, {"extract_features": {"weights": _file(networks.backbone)}})
    choice, _ = of("many" if last_layers and (count or 0) >= MANY else "sentences", reason)
    if networks is None:
        return choice, ""
    return choice._replace(values=with_networks(choice.values, networks)), ""


def with_networks(values: Any, networks: Networks) -> Any:
    """Return parameters with files in place of the names of the networks of small."""
    if isinstance(values, list):
        return [with_networks(value, networks) for value in values]
    if not isinstance(values, Mapping):
        return values
    files: dict[tuple[str, str], tuple[str, Any]] = {}
    files["model", SENTENCES] = "path", str(networks.sentences)
    files["weights", "Pretrained"] = "weights", _file(networks.backbone)
    files["untrained", SMALL] = "untrained", str(networks.backbone.parent)
    entries = (
        files.get((name, value), (name, value)) if isinstance(value, str) else (name, value)
        for name, value in values.items()
    )
    return {name: with_networks(value, networks) for name, value in entries}


def demo_section() -> dict[str, Any]:
    """Return the section ``extract_features`` with the backbone of ``bifocal demo``, which is part
    of the package."""
    extractor = parameters.load(SHIPPED / RECIPE)["extract_features"]["extractor"]
    return {"extractor": {**extractor, "size": DEMO_SIZE}, "weights": _file(SHIPPED / BACKBONE)}


def _file(weights: Path) -> dict[str, str]:
    return {"name": "FromFile", "path": str(weights)}


def _names_features(section: Mapping[str, Any]) -> bool:
    """Return whether a section ``extract_features`` of the user names features of its own, not only
    a size."""
    extractor = section.get("extractor", {})
    return (
        "weights" in section
        or not isinstance(extractor, Mapping)
        or not {"name", "backbone"}.isdisjoint(extractor)
    )


def check_weights(values: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a file of weights in ``own`` is not used, or is not of the backbone
    that the recipe names."""
    found, weights = values["extract_features"], own["extract_features"]["weights"]
    extractor = own["extract_features"]["extractor"]
    file = Path(weights["path"]) if isinstance(weights, Mapping) and "path" in weights else None
    if file is None or file.is_relative_to(SHIPPED) or extractor["name"] == "OpenClip":
        return
    if found["weights"] != weights:
        raise ValueError(
            f"{file} is not used: --recipe or --set names other weights; leave one of them out"
        )
    if found["extractor"].get("backbone") == extractor["backbone"] and not is_backbone(file):
        raise ValueError(
            f"{file} has not the weights of {extractor['backbone']}: write a recipe that names "
            "your backbone in extract_features, and give it with --recipe"
        )


def _contrastive_sections(encoder: str, weights: Path | None) -> dict[str, Any]:
    """Return the parameters that put a contrastive model in the place of the one in
    ``recipes/own/clip.yaml``."""
    from bifocal.backbones.open_clip import OpenClipBackbone

    name, file = torch_encoder(encoder, weights)
    named = {"model": name, "tag": None}
    return {
        "extract_features": {"extractor": named, "weights": _file(file)},
        "vectorize_captions": {"vectorizer": {**named, "path": str(file)}},
        "train_embedding": {"model": {"dim": OpenClipBackbone(name, None).dim}},
    }


def fit_head(values: dict[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the parameters without the recipe's pointing head, and words that say so, where the
    user's values leave it no place.

    It needs a classifier of the backbone, and no localizer. The report shows the head that is
    exported.
    """
    extractor, export = values["extract_features"]["extractor"], values["export_onnx"]
    given, head = own["export_onnx"].get("pointing"), export.get("pointing")
    has_classes = isinstance(extractor, dict) and (
        extractor.get("classes") or extractor.get("classifier")
    )
    note = ""
    if head is not None and head == given and (export.get("localizer") or not has_classes):
        head, note = None, ", without a pointing head"
    shown = {"name": "BackbonePointing", "head": given}
    evaluators = [
        {**shown, "head": head} if ref == shown else ref
        for ref in values["evaluate"]["evaluators"]
        if ref != shown or head is not None
    ]
    fitted = {"export_onnx": {"pointing": head}, "evaluate": {"evaluators": evaluators}}
    return parameters.merge(values, fitted), note


def count_captioned(directory: str, user: Sequence[parameters.Layer]) -> int | None:
    """Return the images with captions of the corpus; None if they are not counted, as on S3.

    Raises:
        ValueError: they are too few; archives are not opened.
    """
    corpus: dict[str, Any] = {"name": ImageFolder.__name__, "root": directory}
    for section in parameters.stated(user, "prepare_dataset"):
        stated = section.get("corpus", {})
        if not isinstance(stated, Mapping):
            return None
        corpus = dict(stated) if "name" in stated else {**corpus, **stated}
    root = str(corpus.get("root"))
    if corpus["name"] != ImageFolder.__name__ or not Path(root).is_dir():
        return None
    count: int | None = build("bifocal.datasets.corpora", corpus).count_captioned()
    return count
