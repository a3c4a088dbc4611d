"""Contradictions between references to the parts of a ranking model, found before its training."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from bifocal.ranking_heads.serialization import BACKBONES
from bifocal.registry import build, get, split


def backbone_conflicts(backbone: Any | None, embedding: Path | None, module_names: Iterable[str]) -> Iterator[str]:
    """Explain an embedding that the backbone cannot start from, and modules of a backbone that does not exist."""
    name = "null" if backbone is None else split(backbone)[0]
    if embedding is not None and (backbone is None or not hasattr(get(BACKBONES, name), "load_embedding")):
        yield f"embedding is set, but backbone is {name}: set it to EncoderBackbone with the embedding's encoder"
    if backbone is None and any(module.split(".")[0] == "backbone" for module in module_names):
        yield "a phase names backbone, but backbone is null: only the head trains, on stored features"


def sorter_conflicts(sorter: Any | None, losses: Iterable[Any]) -> Iterator[str]:
    """Explain a sorter that must be trained first, and a sorter that no loss uses; None is the pretrained sorter."""
    if sorter is None:
        return
    name, refs = split(sorter)[0], list(losses)
    built: nn.Module = build("bifocal.sorters", sorter)
    if any(True for _ in built.parameters()):
        yield (f"sorter is {name}, which must be trained first: train it, and set sorter to null")
        return
    modules = [module for ref in refs for module in build("bifocal.losses", ref, sorter=built).modules()]
    if not any(module is built for module in modules):
        names = " and ".join(split(ref)[0] for ref in refs)
        yield f"sorter is {name}, but {names} use no sorter: set sorter to null"
