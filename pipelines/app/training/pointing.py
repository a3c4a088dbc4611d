"""The pointing head of a backbone: of a training, and of weights without a training."""

import hashlib
from pathlib import Path
from typing import Any

from bifocal.onnx.pointing import PointingHead
from pipelines.app.training.backbones import Networks, features_section, find_networks
from runtime import parameters

SENTENCES = "sentence-transformers/all-MiniLM-L6-v2"
"""Sentence encoder on the Hugging Face hub, if the weights are downloaded too."""


def with_pointing(values: dict[str, Any], networks: Networks | None) -> dict[str, Any]:
    """Return the parameters with a pointing head, if the backbone has a classifier and no localizer is chosen.

    The head is exported, and its guesses are in the report.
    """
    extractor, export = values["extract_features"]["extractor"], values["export_onnx"]
    has_classifier = isinstance(extractor, dict) and (extractor.get("classes") or extractor.get("classifier"))
    if not has_classifier or export.get("pointing") or export.get("localizer"):
        return values
    section, evaluators = pointing_section(networks), values["evaluate"]["evaluators"]
    evaluators = [*evaluators, {"name": "BackbonePointing", "head": section}]
    return parameters.merge(values, {"export_onnx": {"pointing": section}, "evaluate": {"evaluators": evaluators}})


def pointing_section(networks: Networks | None) -> dict[str, Any]:
    """Return the pointing head of a backbone: by a sentence encoder, or by words if none is at hand."""
    if networks is not None:
        source = {} if networks.sentences is None else {"path": str(networks.sentences.resolve())}
        return {"name": "ClassMixture", **source}
    from bifocal.text.transformer.folder import find_folder

    try:
        find_folder(SENTENCES, None)
    except FileNotFoundError:
        return {"name": "ClassMixture"}
    return {"name": "ClassMixture", "model": SENTENCES}


def pointer_of_weights(path: Path) -> PointingHead:
    """Return the pointing head of a file or a folder of weights; the user's cache keeps it."""
    return PointingHead(head_of_weights(path))


def head_of_weights(path: Path) -> Path:
    """Return the folder of the exported pointing head of a file or a folder of weights, in the user's cache."""
    from bifocal.durable import cache_folder
    from bifocal.export.cached import code_digest
    from bifocal.export.pointing import export_head
    from bifocal.registry import build

    networks = find_networks(path)
    assert networks is not None  # the path is given
    section = features_section(networks.backbone)["extractor"]
    backbone = build("bifocal.features.extractors", section).backbone
    head = build("bifocal.localization.heads", pointing_section(networks))
    encoder = [] if networks.sentences is None else sorted(networks.sentences.rglob("*.safetensors"))
    files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in (networks.backbone, *encoder)]
    folder = cache_folder() / hashlib.sha256(f"{code_digest()} {head} {files}".encode()).hexdigest()[:32]
    if not (folder / "head.json").is_file():
        export_head(backbone.describe(), networks.backbone, head, folder, seed=0)
    return folder
