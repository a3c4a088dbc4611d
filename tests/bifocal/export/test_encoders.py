"""Export of an encoder that reads pixels: batch, height and width stay dynamic, and the output
equals torch's."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import bifocal
from bifocal.backbones.timm.trainable import resize_for_eval
from bifocal.export.backbone import keeps_pixels, write_preprocessing
from bifocal.export.encoders import export_encoder
from bifocal.export.graphs.parity import compare_encoder
from bifocal.export.localizer import compare_localizer, export_localizer
from bifocal.features import FeatureWriter
from bifocal.features.extractors import ImageFiles
from bifocal.models import build_model, load_model, save_model
from bifocal.onnx.pixels import read_pixels
from bifocal.search.collection.embedding import CollectionEmbedder
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.collection.sources import Source


@pytest.mark.slow
def test_exported_bean_accepts_images_of_any_size(tmp_path: Path) -> None:
    encoder = {
        "name": "BEANEncoder",
        "backbone": "resnet10t",
        "maps": 6,
        "model_arguments": {"channels": [8, 16, 24, 32], "stem_width": 8},
    }
    torch.manual_seed(0)
    ref = {
        "name": "TwoBranchModel",
        "dim": 5,
        "image_encoder": encoder,
        "text_encoder": "ProjectionEncoder",
    }
    save_model(tmp_path, build_model(ref, feature_dim=3, text_dim=4, text_format="vectors"))
    file = tmp_path / "image_encoder.onnx"
    export_encoder(tmp_path, "image_encoder", file)
    for package in (bifocal, torch):  # no path of the machine that exports
        assert str(Path(package.__path__[0])).encode() not in file.read_bytes()
    parities = list(compare_encoder(tmp_path, "image_encoder", file, seed=0))
    assert len(parities) == 9
    assert max(parity.difference for parity in parities) < 1e-5
    exported = load_model(tmp_path).image_encoder
    assert keeps_pixels(exported, "square", 400)  # image_size of BEANEncoder
    assert not keeps_pixels(exported, "square", 399)
    assert exported.stretched_side == 400

    export_localizer(tmp_path, tmp_path, tmp_path)
    assert list(compare_localizer(tmp_path, tmp_path, seed=0)) == []  # no graph reads images
    (tmp_path / "preprocessing.json").write_text(
        json.dumps({"size": 400, "interpolation": "bilinear"})
    )
    for localizer in (None, {"name": "SmoothedActivations", "sigma": 0.2}):
        export_localizer(tmp_path, tmp_path, tmp_path, localizer)
        (parity,) = compare_localizer(tmp_path, tmp_path, 0, localizer)
        assert (parity.branch, parity.length) == ("localizer", 13 * 13)
        assert parity.difference < 1e-5
    assert json.loads((tmp_path / "localizer.json").read_text())["arguments"] == {
        "sigma": 0.2,
        "center": 0.5,
    }


@pytest.mark.slow
def test_exported_rmac_embeds_images_with_their_aspect_ratio_as_evaluation_does(
    tmp_path: Path,
) -> None:
    extractor = ImageFiles(160, "aspect", "resnet10t")
    torch.manual_seed(0)
    network = {"channels": [8, 16, 24, 32], "stem_width": 8}
    encoder = {"name": "RMACEncoder", "backbone": "resnet10t", "model_arguments": network}
    ref = {
        "name": "TwoBranchModel",
        "dim": 5,
        "image_encoder": encoder,
        "text_encoder": "ProjectionEncoder",
    }
    model = build_model(ref, feature_dim=3, text_dim=4, text_format="vectors").eval()
    save_model(tmp_path, model)
    export_encoder(tmp_path, "image_encoder", tmp_path / "image_encoder.onnx")
    parities = list(
        compare_encoder(tmp_path, "image_encoder", tmp_path / "image_encoder.onnx", seed=0)
    )
    assert max(parity.difference for parity in parities) < 1e-5
    assert keeps_pixels(model.image_encoder, "aspect", 160)
    assert not keeps_pixels(model.image_encoder, "limit", 160)

    (tmp_path / "features").mkdir()
    with FeatureWriter(
        tmp_path / "features", regions=1, dim=2, metadata=extractor.describe()
    ) as writer:
        writer.add("a", np.array([[160, 160]]))
    with pytest.raises(ValueError, match=r"no preprocessing\.json: its graph reads pixels"):
        CollectionEmbedder(tmp_path, "rmac", Source("images", None, [])).write(
            tmp_path / "collection"
        )
    write_preprocessing(tmp_path / "features", tmp_path)
    served = ImageVectors(tmp_path)
    assert served.reads_images
    files, expected = [], []
    for width, height in [(200, 120), (96, 240), (200, 120), (160, 160)]:
        noise = np.random.default_rng(width).integers(0, 256, (6, 9, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        image.save(tmp_path / "image.png")
        files.append((tmp_path / "image.png").read_bytes())
        pixels = extractor.preprocess(image).unsqueeze(0)
        assert max(pixels.shape) == 160
        with torch.inference_mode():
            expected.append(
                model.image_encoder(
                    pixels.float(), torch.ones(pixels[:, 0].shape, dtype=torch.bool)
                )[0]
            )
    pixels = [served.decode(file, 10**6).pixels for file in files]
    vectors, regions = served.encode_inputs(served.read_pixels(pixels))
    assert regions is None
    torch.testing.assert_close(torch.from_numpy(vectors), torch.stack(expected), rtol=0, atol=1e-5)


def test_served_square_is_the_one_that_bean_stretches_an_original_image_to(tmp_path: Path) -> None:
    extractor = ImageFiles(640, "limit", "resnet10t")
    (tmp_path / "features").mkdir()
    with FeatureWriter(
        tmp_path / "features", regions=1, dim=2, metadata=extractor.describe()
    ) as writer:
        writer.add("a", np.array([[90, 60]]))
    write_preprocessing(tmp_path / "features", tmp_path, stretched_side=48)
    coarse = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8))
    image = coarse.resize((90, 60), Image.Resampling.BICUBIC)
    image.save(tmp_path / "image.png")
    encoded = base64.b64encode((tmp_path / "image.png").read_bytes()).decode()
    served = read_pixels(encoded, **json.loads((tmp_path / "preprocessing.json").read_text()))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).unsqueeze(0)
    (evaluated,) = resize_for_eval(pixels, torch.ones(1, 60, 90, dtype=torch.bool), "stretch", 48)
    # The served image is rounded to bytes.
    torch.testing.assert_close(torch.from_numpy(served).float(), evaluated, rtol=0, atol=1.0)
