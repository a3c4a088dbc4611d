"""The untrained R-MAC of the stage train_embedding against scikit-learn's whitening of R-MAC's
regions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from bifocal.datasets import read_dataset
from bifocal.draws import drawn_rows
from bifocal.features.extractors import ImageFiles
from bifocal.features.image_files import open_features
from bifocal.image_encoders.rmac import region_maxima
from bifocal.models import load_model
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed_images
from bifocal.onnx.images import open_image
from bifocal.text import TextStore
from components.extract_features.run import run as extract_features
from components.extract_features.spec import COMPONENT as EXTRACT_FEATURES
from components.train_embedding.run import run
from runtime import parameters
from tests.components.train_embedding.conftest import Scened
from tests.components.train_embedding.section import validated

SMALL = {"channels": [8, 8, 12, 16], "stem_width": 8}
IMAGES = {"backbone": "resnet10t", "size": 64, "model_arguments": SMALL}


@pytest.fixture(scope="module")
def artifacts(scened: Scened, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = scened(30, 4)
    weights = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    torch.manual_seed(0)
    save_file(ImageFiles(**IMAGES).backbone.network.state_dict(), weights)
    extractor = {"name": "ImageFiles", "resize": "aspect", **IMAGES}
    values = parameters.load(Path(__file__).parents[3] / "params.yaml")["extract_features"] | {
        "extractor": extractor,
        "weights": {"name": "FromFile", "path": str(weights)},
    }
    params = parameters.validate({"seed": 0, "extract_features": values}, [EXTRACT_FEATURES])[
        "extract_features"
    ]
    extract_features(params, dataset=paths["dataset"], features=paths["features"])
    return paths


def test_untrained_rmac_is_whitened_by_the_regions_of_training_images(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    encoder = {"name": "RMACEncoder", "backbone": "resnet10t", "model_arguments": SMALL}
    model = {
        "name": "TwoBranchModel",
        "dim": 8,
        "image_encoder": encoder,
        "text_encoder": "BagOfWordsEncoder",
    }
    metrics = run(
        validated(model=model, phases=[], initialization={"name": "PCAWhitening", "images": 20}),
        **artifacts,
        embedding=tmp_path,
    )
    assert metrics["whitening_images"] == 20
    tables = read_dataset(artifacts["dataset"])
    store = open_features(artifacts["features"], tables)
    extractor = ImageFiles(**IMAGES, resize="aspect")
    network = extractor.backbone.network
    network.load_state_dict(load_file(artifacts["features"] / "weights.safetensors"))

    def regions(image_ids: list[str]) -> list[np.ndarray]:
        found = []
        for image_id in image_ids:
            pixels = extractor.preprocess(open_image(tables.image_path(image_id)))
            with torch.inference_mode():
                maps = network.forward_features(extractor.backbone.normalize(pixels[None]))
                found.append(normalize(region_maxima(maps, 2)[0].double().numpy()))
        return found

    train = list(tables.split("train").images["image_id"])
    drawn = drawn_rows(train, 20, 0)
    pca = PCA(8, whiten=True, svd_solver="full").fit(
        np.concatenate(regions([train[row] for row in drawn]))
    )
    test = tables.split("test")
    expected = np.stack(
        [
            normalize(normalize(pca.transform(vectors)).sum(axis=0, keepdims=True))[0]
            for vectors in regions(list(test.images["image_id"]))
        ]
    )
    pairs = ImageCaptionPairs(test, store, TextStore(artifacts["text"]))
    images = embed_images(dual_encoder(load_model(tmp_path)), pairs.image_batches(4)).numpy()
    np.testing.assert_allclose(images @ images.T, expected @ expected.T, atol=1e-3)


def test_pca_whitening_needs_rmac(artifacts: dict[str, Path], tmp_path: Path) -> None:
    model = {
        "name": "TwoBranchModel",
        "dim": 8,
        "text_encoder": "BagOfWordsEncoder",
        "image_encoder": {"name": "BEANEncoder", "backbone": "resnet10t", "model_arguments": SMALL},
    }
    with pytest.raises(ValueError, match="PCAWhitening needs an RMACEncoder, not BEANEncoder"):
        run(
            validated(model=model, phases=[], initialization="PCAWhitening"),
            **artifacts,
            embedding=tmp_path,
        )
