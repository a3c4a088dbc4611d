"""Ranking models: built from references, saved as ``config.json`` and ``model.safetensors``, and loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bifocal.features import FeatureStore
from bifocal.ranking_heads.backbones import EncoderBackbone
from bifocal.ranking_heads.backbones.base import RankingBackbone
from bifocal.ranking_heads.model import RankingModel
from bifocal.registry import as_mapping, build
from bifocal.serialization import load_config, load_state, save_network

BACKBONES = "bifocal.ranking_heads.backbones"


def build_ranking_model(head: Any, backbone: Any | None, *, input_dim: int, labels: int) -> RankingModel:
    """Return a model with random weights and C = ``labels`` scores per image; ``input_dim`` is 3 for pixels."""
    network: RankingBackbone | None = None if backbone is None else build(BACKBONES, backbone, input_dim=input_dim)
    dim = input_dim if network is None else network.dim
    return RankingModel(build("bifocal.ranking_heads", head, input_dim=dim, labels=labels), network)


def new_ranking_model(
    head: Any, backbone: Any | None, store: FeatureStore, labels: int, seed: int, embedding: Path | None = None
) -> RankingModel:
    """Return a model on the GPU, if any, with a random head, and a backbone with stored or ``embedding``'s weights."""
    torch.manual_seed(seed)
    model = build_ranking_model(head, backbone, input_dim=store.dim, labels=labels)
    if isinstance(model.backbone, EncoderBackbone) and embedding is not None:
        model.backbone.load_embedding(embedding, store)
    elif model.backbone is not None:
        model.backbone.load_pretrained(store.directory)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def save_head(
    directory: Path,
    model: RankingModel,
    head: Any,
    backbone: Any | None,
    *,
    input_dim: int,
    task: str,
    labels: Sequence[str],
) -> None:
    """Write ``model``, the arguments of ``build_ranking_model`` and the names of its scores."""
    config = {"head": as_mapping(head), "backbone": None if backbone is None else as_mapping(backbone)}
    save_network(directory, config | {"input_dim": input_dim, "task": task, "labels": list(labels)}, model.state_dict())


def load_head(directory: Path) -> tuple[RankingModel, list[str]]:
    """Return the ranking model that ``save_head`` wrote, in evaluation mode, and the names of its scores."""
    config = load_config(directory, "ranking head")
    labels: list[str] = config["labels"]
    model = build_ranking_model(config["head"], config["backbone"], input_dim=config["input_dim"], labels=len(labels))
    model.load_state_dict(load_state(directory, "ranking head"))
    return model.eval(), labels
