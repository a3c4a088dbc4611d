"""Semantic retrieval against tf-idf of the captions and against people; text modifiers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.evaluation import SemanticRetrieval, SimilarImages, TextModifiers
from bifocal.evaluation.base import Subject
from bifocal.evaluation.human_triplets import triplet_metrics, triplet_rows
from bifocal.evaluation.semantic_retrieval import semantic_metrics
from bifocal.image_encoders import MultiLevelEncoder
from bifocal.metrics import choose_queries, semantic_curves
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance
from bifocal.models import GroundingModel
from bifocal.text.vectorizers import TFIDF
from bifocal.text_encoders import ElmoMixtureEncoder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("scenes")
    corpus = Scenes(train=12, val=1, test=20, size=64).read(folder / "images")
    write_dataset(folder, "Scenes", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=0.0)
    return read_dataset(folder)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return normalize(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), dim=1)


def test_semantic_metrics_use_tf_idf_of_training_captions(dataset: Dataset, images: torch.Tensor) -> None:
    split = dataset.split("test")
    metrics, curves = semantic_metrics(images, dataset, split, seed=3)
    vectorizer = TFIDF()
    vectorizer.fit(list(dataset.split("train").captions["text"]), seed=0)
    queries = choose_queries(20, seed=3)
    relevant = relevance(image_vectors(vectorizer, split), queries)
    ndcg, pcc = semantic_curves(images[queries] @ images.T, relevant, queries, [8, 16])
    assert (metrics["NDCG@8"], metrics["PCC@16"]) == pytest.approx((100 * ndcg[8], 100 * pcc[16]))
    assert metrics["NDCG_area"] == pytest.approx(50 * (ndcg[8] + ndcg[16]))
    assert list(curves["R"]) == [8, 16]
    assert metrics["queries"] == 20
    # Embeddings equal to the tf-idf vectors are perfect, random scores are not.
    vectors = torch.from_numpy(image_vectors(vectorizer, split).toarray()).float()
    perfect, _ = semantic_metrics(vectors, dataset, split, seed=3)
    assert perfect["NDCG_area"] == pytest.approx(100, abs=1e-3)
    assert perfect["chance"]["NDCG_area"] < 90


def test_triplet_metrics_agree_with_nearer_image(
    dataset: Dataset, images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three triplets of the split and one of another: votes 4 1 0, 0 3 1 and 2 2 2."""
    small = {"dim": 8, "centers": 2, "components": 8, "epochs": 1}
    monkeypatch.setattr("bifocal.evaluation.human_triplets.FISHER", small)
    split = dataset.split("test")
    ids = list(split.images["image_id"])
    rows = [(0, 1, 2, 4, 1, 0), (3, 4, 5, 0, 3, 1), (6, 7, 8, 2, 2, 2)]
    lines = [f"{ids[q]},{ids[a]},{ids[b]},{o1},{o2},{o3}" for q, a, b, o1, o2, o3 in rows]
    path = tmp_path / "triplets.csv"
    path.write_text("\n".join(["query,first,second,o1,o2,o3", *lines, f"{ids[0]},elsewhere,{ids[1]},1,0,0"]))
    metrics = triplet_metrics(path, images, dataset, split, seed=0)
    agreement = [
        (o1 if float(images[q] @ images[a]) > float(images[q] @ images[b]) else o2) / (o1 + o2 + o3)
        for q, a, b, o1, o2, o3 in rows
    ]
    assert metrics["agreement"] == pytest.approx(100 * np.mean(agreement))
    assert (metrics["triplets"], metrics["left_out"]) == (3, 1)
    for name in ("tf_idf", "tf_idf_matched", "fisher_matched"):
        assert 0 <= metrics[name] <= 100
    assert triplet_rows(metrics)[0].value == metrics["agreement"]
    path.write_text("query,first,second,o1,o2,o3\nno,such,image,1,0,0\n")
    with pytest.raises(ValueError, match="none of 1 triplets has all of its images in the evaluated split"):
        triplet_metrics(path, images, dataset, split, seed=0)


def test_evaluators_of_single_vectors_skip_grounding_model_and_triplets_are_rejected(subject: Subject) -> None:
    texts = ElmoMixtureEncoder(8, 6, layers=3)
    model = GroundingModel(MultiLevelEncoder(12, 6, levels=1), texts, text_format="contextual")
    grounding = replace(subject, model=model)
    for evaluator in (SemanticRetrieval(), TextModifiers(), SimilarImages()):
        result = evaluator(grounding)
        assert "GroundingModel has no single vector" in result.skipped
        assert (result.metrics, result.report_sections()) == ({}, [])
    with pytest.raises(ValueError, match="GroundingModel has no single vector per image to compare"):
        SemanticRetrieval(Path("some.csv"))(grounding)


def test_text_modifiers_are_skipped_without_distinctive_words(subject: Subject) -> None:
    captions = subject.dataset.captions.assign(text="a dog")
    changed = replace(subject, dataset=replace(subject.dataset, captions=captions))
    assert "No word occurs" in TextModifiers()(changed).skipped
