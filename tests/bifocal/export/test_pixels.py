"""Export of an encoder that reads pixels: batch, height and width stay dynamic, and the output equals torch's."""

from pathlib import Path

import torch

from bifocal.export.encoders import export_encoder, keeps_square
from bifocal.export.parity import compare_encoder
from bifocal.models import build_model, save_model


def test_exported_bean_accepts_images_of_any_size(tmp_path: Path) -> None:
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
    export_encoder(tmp_path, "image_encoder", file)
    parities = list(compare_encoder(tmp_path, "image_encoder", file, seed=0))
    assert len(parities) == 9
    assert max(parity.difference for parity in parities) < 1e-5
    assert keeps_square(tmp_path, 400)  # image_size of BEANEncoder
    assert not keeps_square(tmp_path, 399)
