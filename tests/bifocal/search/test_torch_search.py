"""Heatmaps of search results, and search with a grounding model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models import GroundingModel, TwoBranchModel, build_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.search import GroundingSearch, Heatmaps, Search, SearchIndex, TorchEmbedder
from bifocal.text.vectorizers import ElmoLayers
from bifocal.text.vectorizers.base import FittedVectorizer, load_vectorizer, write_text
from bifocal.training.pretraining.elmo import pretrain_elmo

CELLS = torch.tensor([[x / 3, y / 3, (x + 1) / 3, (y + 1) / 3] for y in range(3) for x in range(3)])


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Four images of 3 x 3 cells; in image n only cell n is not zero."""
    folder: Path = tmp_path_factory.mktemp("features")
    with FeatureWriter(folder, regions=9, dim=5, metadata={}, images_per_file=4) as writer:
        for number in range(4):
            cells = np.zeros((9, 5), np.float32)
            cells[number, number] = 1
            writer.add(f"image {number}", cells, CELLS.numpy())
    return FeatureStore(folder)


def smile(
    pairs: ImageCaptionPairs, features: FeatureStore, encoder: str = "SMILEEncoder"
) -> TwoBranchModel:
    torch.manual_seed(0)
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 5,
            "image_encoder": encoder,
            "text_encoder": "GRUEncoder",
        },
        feature_dim=features.dim,
        text_dim=pairs.text.dim,
        text_format="tokens",
        vocabulary_size=len(pairs.text.vocabulary),
    )
    assert isinstance(model, TwoBranchModel)
    return model


def test_heatmap_marks_the_cell_of_the_query(
    pairs: ImageCaptionPairs, features: FeatureStore
) -> None:
    model = smile(pairs, features)
    with torch.no_grad():
        model.image_encoder.convolution.weight.copy_(torch.eye(5))
    embedder = TorchEmbedder(model, load_vectorizer(pairs.text.directory))
    search = Search(SearchIndex.of([f"image {n}" for n in range(4)], np.eye(4, 5)), embedder)
    explain = Heatmaps(model, features, size=6)
    for number, hit in enumerate(
        search(vector=np.eye(4, 5)[n], k=1, explain=explain)[0] for n in range(4)
    ):
        assert hit.id == f"image {number}"
        expected = torch.zeros(3, 3)
        expected[number // 3, number % 3] = 1
        torch.testing.assert_close(
            hit.explanation, expected.repeat_interleave(2, 0).repeat_interleave(2, 1)
        )


@pytest.mark.filterwarnings("error")
def test_query_of_a_heatmap_is_an_array_or_a_tensor(
    pairs: ImageCaptionPairs, features: FeatureStore
) -> None:
    explain, query = Heatmaps(smile(pairs, features), features, size=6), np.arange(5.0)
    expected = explain("image 0", query)
    assert expected.any()
    torch.testing.assert_close(
        explain("image 0", torch.from_numpy(query)), expected, rtol=0, atol=0
    )


def test_heatmaps_reject_an_encoder_without_localizer(
    pairs: ImageCaptionPairs, features: FeatureStore
) -> None:
    model = smile(pairs, features, "LinearEncoder")
    with pytest.raises(
        ValueError, match="a LinearEncoder has no localizer: search without explain"
    ):
        Heatmaps(model, features)


@pytest.fixture(scope="module")
def grounding(
    features: FeatureStore, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GroundingModel, FittedVectorizer]:
    folder: Path = tmp_path_factory.mktemp("elmo")
    captions = ["a red star", "a blue ring above a heart", "the sea"] * 7
    vectorizer = ElmoLayers(
        projection_dim=4, lstm_dim=6, filters=((1, 3),), epochs=1, train=pretrain_elmo
    )
    vectorizer.fit(captions, seed=0)
    write_text(folder, vectorizer, range(len(captions)), captions)
    torch.manual_seed(0)
    model = build_model(
        {
            "name": "GroundingModel",
            "dim": 6,
            "image_encoder": {"name": "MultiLevelEncoder", "levels": 1},
            "text_encoder": "ElmoMixtureEncoder",
        },
        feature_dim=features.dim,
        text_dim=8,
        text_format="contextual",
    )
    assert isinstance(model, GroundingModel)
    return model, load_vectorizer(folder)


def test_grounding_search_ranks_images_by_the_scores_of_the_model(
    grounding: tuple[GroundingModel, FittedVectorizer], features: FeatureStore
) -> None:
    model, vectorizer = grounding
    names = [f"image {number}" for number in (2, 0, 3, 1)]
    search = GroundingSearch.from_features(model, vectorizer, names, features)
    hits = search("a red star", k=3, explain=Heatmaps(model, features, size=3))
    with torch.inference_mode():
        sentences, words = model.embed_captions(vectorizer.vectorize(["a red star"]))
        cells = model.embed_images(features.gather(features.rows(names)))
        scores = model.score(cells, (sentences, words)).cross[:, 0]
    order = scores.argsort(descending=True)[:3].tolist()
    assert [hit.id for hit in hits] == [names[row] for row in order]
    assert [hit.score for hit in hits] == pytest.approx(scores[order].tolist())
    for hit, row in zip(hits, order, strict=True):
        torch.testing.assert_close(hit.explanation.flatten(), (cells[row, 0] @ sentences[0]).relu())


def test_search_rejects_a_grounding_model(
    grounding: tuple[GroundingModel, FittedVectorizer],
) -> None:
    model, vectorizer = grounding
    with pytest.raises(
        TypeError, match="no single vector for an image: search with GroundingSearch"
    ):
        TorchEmbedder(model, vectorizer)
