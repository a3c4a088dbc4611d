"""Parameters of a pipeline on a sample: fewer images, fewer epochs, and stand-ins for files that are not here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bifocal.registry import all_arguments, build
from pipelines.plan.corpus import DRAWN, CorpusSize, published
from runtime.parameters import merge

EXTRACTORS, VECTORIZERS, BATCHES = (
    "bifocal.features.extractors", "bifocal.text.vectorizers", "bifocal.training.batches",
)  # fmt: skip
STEPS = 4
"""Steps per epoch of batches that do not follow the number of captions."""


def sample(values: Mapping[str, Any], size: CorpusSize, images: int, epochs: int) -> dict[str, Any]:
    """Return the parameters for about ``images`` images and ``epochs`` epochs."""
    reduced = merge(values, {"prepare_dataset": {"corpus": _corpus(values, size, images)}})
    for section in ("train_embedding", "train_ranking_head"):
        phases = [_phase(phase, epochs) for phase in values[section]["phases"]]
        reduced = merge(reduced, {section: {"phases": phases}})
    if "members" in values["train_embedding"]:
        reduced = merge(reduced, {"train_embedding": {"members": 1}})
    if values["pretrain_sorter"]["training"] is not None:
        training = {**values["pretrain_sorter"]["training"], "epochs": epochs, "depths": []}
        reduced = merge(reduced, {"pretrain_sorter": {"training": {**training, "schedule": {"name": "Constant"}}}})
    # Random weights of a stand-in may round differently in the exported graph; its time does not depend on that.
    return merge(reduced, {"export_onnx": {"tolerance": 1e6}})


def work(stage: str, values: Mapping[str, Any], images: int, captions: int) -> float:
    """Return the amount that the time of a stage is proportional to, besides a fixed part."""
    if stage == "vectorize_captions":
        return captions
    section = values.get(stage, {})
    if stage == "pretrain_sorter":
        return float((section["training"] or {}).get("epochs", 0))
    if stage == "train_ranking_head":
        return float(images * sum(phase["epochs"] for phase in section["phases"]))
    if stage != "train_embedding":
        return images
    per_epoch = (
        phase["epochs"] * (all_arguments(BATCHES, phase["batches"]).get("steps_per_epoch") or captions)
        for phase in section["phases"]
    )
    return float(section.get("members", 1) * sum(per_epoch))


def least_images(values: Mapping[str, Any]) -> int:
    """Return the images that fill a batch of the largest phase, with a fifth more for the other splits."""
    needed = [1]
    for phase in values["train_embedding"]["phases"]:
        batches = build(BATCHES, phase["batches"])
        needed.append(-(-batches.batch_size // getattr(batches, "captions_per_image", 1)))
    return max(needed) * 5 // 4


def stand_ins(values: Mapping[str, Any], size: CorpusSize, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return ``values`` without parts that read missing files, and a sentence about each replacement."""
    replaced, notes = dict(values), []
    if size.stand_in is not None:
        notes.append(f"{values['prepare_dataset']['corpus']['name']} is not on this machine: drawn scenes instead")
    features, text = values["extract_features"], values["vectorize_captions"]["vectorizer"]
    extractor = features["extractor"]
    if _is_missing(extractor) and extractor["name"] in published()["stand_ins"]:
        shape = published()["stand_ins"][extractor["name"]]
        notes.append(
            f"the files of {extractor['name']} are not here: computed {shape['regions']} x {shape['dim']} cells"
        )
        side = 32 * round(shape["regions"] ** 0.5)
        network = {"channels": [8, 16, 32, shape["dim"]], "stem_width": 8}
        extractor = {"name": "Grid", "backbone": "resnet10t", "stage": 4, "size": side, "model_arguments": network}
        features = {**features, "extractor": extractor, "weights": "Pretrained", "batch_size": 32}
    weights = features["weights"]
    if (weights if isinstance(weights, str) else (weights or {}).get("name")) in ("Pretrained", "TrainClassifier") or (
        _is_missing(weights)
    ):
        features = {**features, "weights": {"name": "FromFile", "path": str(_random_weights(extractor, folder))}}
        notes.append("random weights of the backbone, whose values do not change time and memory")
    replaced["extract_features"] = features
    if _is_missing(text) and text["name"] in published()["stand_ins"]:
        changed = published()["stand_ins"][text["name"]]
        text = changed if "name" in changed else {**text, **changed}
        notes.append(f"the files of the vectorizer are not here: {text['name']} instead")
        replaced["vectorize_captions"] = {**values["vectorize_captions"], "vectorizer": text}
    return replaced, notes


def _corpus(values: Mapping[str, Any], size: CorpusSize, images: int) -> dict[str, Any]:
    corpus = values["prepare_dataset"]["corpus"]
    if size.stand_in is None and corpus["name"] not in DRAWN:
        return {"name": "Subset", "corpus": corpus, "images": images}
    part = max(4, images // 10 // 2 * 2)
    counts = {"train": max(4, images - 2 * part), "val": part, "test": part}
    return {**(size.stand_in or corpus), **counts}


def _phase(phase: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """Return a phase whose modules train from its first epoch, which costs most."""
    frozen = {name: until for name, until in phase["frozen_until"].items() if until is None}
    changed = {**phase, "epochs": epochs, "schedule": {"name": "Constant"}, "frozen_until": frozen}
    batches = phase.get("batches")
    if isinstance(batches, Mapping) and all_arguments(BATCHES, batches).get("steps_per_epoch"):
        changed["batches"] = {**batches, "steps_per_epoch": STEPS}
    return changed


def _is_missing(ref: Any) -> bool:
    path = ref.get("path") if isinstance(ref, Mapping) else None
    return path is not None and not str(path).startswith("s3://") and not Path(path).exists()


def _random_weights(extractor: Any, folder: Path) -> Path:
    from safetensors.torch import save_model

    save_model(build(EXTRACTORS, extractor).backbone.network, str(folder / "weights.safetensors"))
    return folder / "weights.safetensors"
