"""The published checkpoint of bottom-up attention as safetensors."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from bifocal.backbones.detectors.bottom_up import BottomUpBackbone, BottomUpNetwork
from bifocal.backbones.state import load_into

NAMES = {
    "backbone.": "",
    "proposal_generator.rpn_head.": "rpn.",
    "roi_heads.res5.": "res5.",
    "roi_heads.box_predictor.cls_score.": "cls_score.",
}
"""Prefixes of the checkpoint's names, and ours."""
UNUSED = (
    "roi_heads.box_predictor.bbox_pred.",
    "roi_heads.box_predictor.cls_embed.",
    "roi_heads.box_predictor.attr_",
    "proposal_generator.anchor_generator.",
    "pixel_",
)
"""Prefixes of tensors that the features do not need: refined boxes, attributes, constants."""


def convert_bottom_up(checkpoint: Path, target: Path, network: BottomUpNetwork | None = None) -> int:
    """Write the weights that ``BottomUp`` loads with ``FromFile`` to ``target``; return the number of tensors.

    The checkpoint is ``bua-caffe-frcn-r101-k36.pth`` or ``bua-caffe-frcn-r101-k10-100.pth`` of Yu et al.
    (github.com/MILVLG/bottom-up-attention.pytorch); no code in it runs.
    """
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several classes for files that are not checkpoints
        raise ValueError(f"{checkpoint} is refused: it is not a checkpoint with only tensors ({error})") from error
    state = content.get("model", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ValueError(f"{checkpoint} holds no named weights, expected the checkpoint R101-k36")
    tensors = {}
    for name, tensor in state.items():
        if name.startswith(UNUSED) or name.endswith("num_batches_tracked"):
            continue
        prefix = next((prefix for prefix in NAMES if name.startswith(prefix)), None)
        tensors[name if prefix is None else NAMES[prefix] + name.removeprefix(prefix)] = tensor.float().contiguous()
    load_into(BottomUpBackbone({}).network if network is None else network, tensors, checkpoint)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target)
    return len(tensors)
