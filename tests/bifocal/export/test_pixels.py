"""A branch that reads pixels as ONNX: batch, height and width stay free, and its numbers are torch's."""

from pathlib import Path

import torch

from bifocal.export.encoders import compare, export_branch, sees_squares
from bifocal.models import build_model, save_model


def test_bean_over_pixels_is_exported_with_free_sizes(tmp_path: Path) -> None:
    encoder = {
        "name": "BEANEncoder",
        "backbone": "resnet10t",
        "maps": 6,
        "model_arguments": {"channels": [8, 16, 24, 32], "stem_width": 8},
    }
    torch.manual_seed(0)
    ref = {"name": "TwoBranchModel", "dim": 5, "image_encoder": encoder, "text_encoder": "ProjectionEncoder"}
    save_model(tmp_path, build_model(ref, feature_dim=3, text_dim=4, text_format="vectors"))
    file = tmp_path / "image_encoder.onnx"
    export_branch(tmp_path, "image_encoder", file)
    parities = list(compare(tmp_path, "image_encoder", file, seed=0))
    assert len(parities) == 9
    assert max(parity.difference for parity in parities) < 1e-5
    assert sees_squares(tmp_path, 400)  # the side that BEANEncoder stretches to
    assert not sees_squares(tmp_path, 399)
