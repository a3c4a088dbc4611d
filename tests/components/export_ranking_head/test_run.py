"""Export of ranking heads, and their scores as MLflow serves them."""

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bifocal.features import FeatureWriter
from bifocal.onnx.pyfunc import RankingPredictor, open_model
from bifocal.ranking_heads.model import build_ranking_model, save_head
from components.export_ranking_head.run import run
from components.export_ranking_head.spec import ExportRankingHeadParams

SIZE, LABELS = 32, ["cat", "dog"]
PARAMS = ExportRankingHeadParams(seed=0, tolerance=1e-4)
CELLS: dict[str, Any] = {
    "name": "CellBackbone",
    "backbone": "resnet10t",
    "image_size": SIZE,
    "model_arguments": {"channels": [4, 4, 4, 8], "stem_width": 4},
}


def export(
    folder: Path, backbone: Any, metadata: dict[str, Any], dim: int
) -> tuple[torch.nn.Module, RankingPredictor]:
    """Export a model of random weights; return it and the served model."""
    features, head, onnx = (folder / name for name in ("features", "head", "onnx"))
    features.mkdir()
    onnx.mkdir()
    with FeatureWriter(
        features, regions=1, dim=dim, metadata=metadata, images_per_file=1
    ) as writer:
        writer.add("a", np.zeros((1, dim), np.float32))
    torch.manual_seed(0)
    model = build_ranking_model("WildcatHead", backbone, input_dim=dim, labels=2).eval()
    save_head(head, model, "WildcatHead", backbone, input_dim=dim, task="animals", labels=LABELS)
    assert (
        run(PARAMS, features=features, ranking_head=head, ranking_onnx=onnx)["greatest_difference"]
        < 1e-4
    )
    served = open_model(onnx)
    assert isinstance(served, RankingPredictor)
    return model, served


def test_a_model_of_pixels_is_served_with_the_scores_of_torch(tmp_path: Path) -> None:
    preprocessing = {"size": SIZE, "resize": "square", "interpolation": "bicubic"}
    model, served = export(tmp_path, CELLS, {"preprocessing": preprocessing}, dim=3)
    assert served.columns == ("image",)
    pixels = np.random.default_rng(0).integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    files = []
    for image in pixels:
        file = BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(base64.b64encode(file.getvalue()).decode())
    scores = served.predict(pd.DataFrame({"image": files}))
    assert list(scores.columns) == LABELS
    inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    with torch.inference_mode():
        expected = model(inputs, torch.ones(3, SIZE, SIZE, dtype=torch.bool))
    np.testing.assert_allclose(scores.to_numpy(), expected.numpy(), rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="row 0 has text; this model accepts image"):
        served.predict(pd.DataFrame({"text": ["a dog"]}))
    assert len(served.predict(served.example())) == 2


def test_a_head_on_stored_features_is_served_with_the_scores_of_torch(tmp_path: Path) -> None:
    model, served = export(tmp_path, None, {}, dim=4)
    assert served.columns == ("features",)
    rows = [
        np.random.default_rng(seed).normal(size=(5 - seed, 4)).astype(np.float32)
        for seed in range(2)
    ]
    scores = served.predict(pd.DataFrame({"features": [row.tolist() for row in rows]}))
    for row, found in zip(rows, scores.to_numpy(), strict=True):
        with torch.inference_mode():
            expected = model(
                torch.from_numpy(row)[None], torch.ones(1, len(row), dtype=torch.bool)
            )[0]
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="row 0 has none, expected one of features"):
        served.predict(pd.DataFrame({"features": [None]}))


@pytest.mark.slow
def test_the_visual_path_of_bean_on_original_images_is_served(tmp_path: Path) -> None:
    """BEAN stretches the originals to a square itself, so the served model stretches the images of
    a request."""
    encoder = {
        "name": "BEANEncoder",
        "dim": 6,
        "maps": 4,
        "backbone": "resnet10t",
        "crop": 16,
        "image_size": SIZE,
        "model_arguments": CELLS["model_arguments"],
    }
    preprocessing = {"size": 2 * SIZE, "resize": "limit", "interpolation": "bicubic"}
    metadata = {"preprocessing": preprocessing}
    _, served = export(tmp_path, {"name": "EncoderBackbone", "encoder": encoder}, metadata, dim=3)
    assert served.columns == ("image",)
    assert len(served.predict(served.example())) == 2
