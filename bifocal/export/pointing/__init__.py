"""Export of a backbone's pointing head: ONNX graphs, and the values that serving reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bifocal.export.graphs.parity import Parity
from bifocal.export.pointing.classes import export_class_head, load_class_logits
from bifocal.export.pointing.contrastive import export_contrastive_head
from bifocal.localization.heads import ClassMixture, MaskCLIP


def export_head(
    description: Mapping[str, Any],
    weights: Path,
    head: ClassMixture | MaskCLIP,
    folder: Path,
    seed: int,
) -> list[Parity]:
    """Write the pointing head of a backbone to ``folder``, and compare its graphs with torch.

    Graphs are exported once for a backbone, and once for a sentence encoder: the user's cache keeps
    them.
    """
    if isinstance(head, MaskCLIP):
        return export_contrastive_head(description, weights, head, folder, seed)
    return export_class_head(description, weights, head, folder, seed)
