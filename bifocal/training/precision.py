"""Precision of forward passes: bfloat16 where the device multiplies it."""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch

from bifocal.backbones.timm.trainable import TailLayers

Precision = Literal["float32", "bfloat16"]


def autocast_for(device: str, precision: Precision) -> Callable[[], torch.autocast]:
    """Return a function that returns the context of forward passes; see ``multiplies_bfloat16``."""
    enabled = precision == "bfloat16" and multiplies_bfloat16(device)
    # autocast caches weight casts; a cast made under no_grad would detach the next pass, so use a
    # new context.
    return lambda: torch.autocast(device, torch.bfloat16, enabled=enabled)


def embedding_cast(model: Any, precision: Precision) -> torch.autocast:
    """Return the context in which a training embeds a collection: float32, or ``precision`` with
    ``TailLayers``."""
    costly = any(isinstance(module, TailLayers) for module in model.modules())
    return autocast_for(model.device.type, precision if costly else "float32")()


@cache
def multiplies_bfloat16(device: str) -> bool:
    """Return whether a device multiplies matrices of bfloat16 without emulation.

    On a CPU without the instructions, emulation takes many times as long as float32: it trains in
    float32, with one warning.
    """
    onednn = torch.backends.mkldnn.is_available()  # not in every build of torch
    supported = device != "cpu" or (onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
    if not supported:
        logging.getLogger(__name__).warning(
            "this CPU has no instructions for bfloat16: training in float32"
        )
    return supported
