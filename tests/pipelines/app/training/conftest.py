"""Networks of random weights."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.bifocal.tiny_transformer import write_tiny_transformer


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a random backbone, a sentence encoder, and another network."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    save_file(timm.create_model("tf_efficientnet_lite2").state_dict(), folder / "lite.safetensors")
    save_file({"other": torch.zeros(1)}, folder / "other.safetensors")
    encoder = write_tiny_transformer(["a photo of a dog"], folder=folder / "encoder")
    (encoder / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.Transformer", "path": ""}]'
    )
    return folder
