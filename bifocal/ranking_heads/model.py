"""A ranking model: a backbone below a head, its files, and what goes together."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bifocal.features import FeatureStore
from bifocal.ranking_heads.backbones import EncoderBackbone
from bifocal.ranking_heads.backbones.base import RankingBackbone
from bifocal.registry import as_mapping, build, get, split
from bifocal.serialization import load_config, load_state, save_network

BACKBONES = "bifocal.ranking_heads.backbones"


def backbone_conflicts(
    backbone: Any | None, embedding: Path | None, module_names: Iterable[str]
) -> Iterator[str]:
    """Explain an embedding that the backbone cannot start from, and modules of a backbone that does
    not exist."""
    name = "null" if backbone is None else split(backbone)[0]
    if embedding is not None and (
        backbone is None or not hasattr(get(BACKBONES, name), "load_embedding")
    ):
        yield (
            f"embedding is set, but backbone is {name}: set it to EncoderBackbone with the "
            "embedding's encoder"
        )
    if backbone is None and any(module.split(".")[0] == "backbone" for module in module_names):
        yield (
            "a phase names backbone, but backbone is null: only the head trains, on stored features"
        )


def sorter_conflicts(sorter: Any | None, losses: Iterable[Any]) -> Iterator[str]:
    """Explain a sorter that must be trained first, and a sorter that no loss uses; None is the
    pretrained sorter."""
    if sorter is None:
        return
    name, refs = split(sorter)[0], list(losses)
    built: nn.Module = build("bifocal.sorters", sorter)
    if any(True for _ in built.parameters()):
        yield (f"sorter is {name}, which must be trained first: train it, and set sorter to null")
        return
    modules = [
        module for ref in refs for module in build("bifocal.losses", ref, sorter=built).modules()
    ]
    if not any(module is built for module in modules):
        names = " and ".join(split(ref)[0] for ref in refs)
        yield f"sorter is {name}, but {names} use no sorter: set sorter to null"


class RankingModel(nn.Module):
    """A ranking head on stored features, or on the features of a backbone that trains with it: ->
    scores (B, C).

    Example:
        >>> import torch
        >>> from bifocal.ranking_heads import MLPHead
        >>> model = RankingModel(MLPHead(input_dim=4, labels=3))
        >>> model(torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)).shape
        torch.Size([2, 3])
    """

    def __init__(self, head: nn.Module, backbone: RankingBackbone | None = None) -> None:
        super().__init__()
        self.head, self.backbone = head, backbone

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        if self.backbone is not None:
            inputs, mask = self.backbone(inputs, mask)
        scores: Tensor = self.head(inputs, mask)
        return scores

    @property
    def reads_pixels(self) -> bool:
        """Whether the inputs are pixels (B, 3, H, W) in [0, 255], and not stored features."""
        return self.backbone is not None and self.backbone.reads_pixels

    def score_pixels(self, pixels: Tensor) -> Tensor:
        """Return the scores (B, C) of images of one size (B, 3, H, W), resized as in evaluation."""
        if self.backbone is None or not self.reads_pixels:
            raise TypeError("this ranking model reads stored features, not pixels")
        features = self.backbone.embed_pixels(pixels)
        scores: Tensor = self.head(features, features.new_ones(features.shape[:2]).bool())
        return scores


def build_ranking_model(
    head: Any, backbone: Any | None, *, input_dim: int, labels: int
) -> RankingModel:
    """Return a model with random weights and C = ``labels`` scores per image; ``input_dim`` is 3
    for pixels."""
    network: RankingBackbone | None = (
        None if backbone is None else build(BACKBONES, backbone, input_dim=input_dim)
    )
    dim = input_dim if network is None else network.dim
    return RankingModel(build("bifocal.ranking_heads", head, input_dim=dim, labels=labels), network)


def new_ranking_model(
    head: Any,
    backbone: Any | None,
    store: FeatureStore,
    labels: int,
    seed: int,
    embedding: Path | None = None,
) -> RankingModel:
    """Return a model on the GPU, if any, with a random head, and a backbone with stored or
    ``embedding``'s weights."""
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
    config = {
        "head": as_mapping(head),
        "backbone": None if backbone is None else as_mapping(backbone),
    }
    save_network(
        directory,
        config | {"input_dim": input_dim, "task": task, "labels": list(labels)},
        model.state_dict(),
    )


def load_head(directory: Path) -> tuple[RankingModel, list[str]]:
    """Return the ranking model that ``save_head`` wrote, in evaluation mode, and the names of its
    scores."""
    config = load_config(directory, "ranking head")
    labels: list[str] = config["labels"]
    model = build_ranking_model(
        config["head"], config["backbone"], input_dim=config["input_dim"], labels=len(labels)
    )
    model.load_state_dict(load_state(directory, "ranking head"))
    return model.eval(), labels
