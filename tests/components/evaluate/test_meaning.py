"""Images that look for images: against the proxy, and against people."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.metrics import choose_queries, semantic_curves
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer
from components.evaluate.meaning import measure_meaning, semantic_figures, triplet_figures
from components.evaluate.measure import Measured
from components.evaluate.tables import meaning_tables
from tests.components.evaluate.test_grounding import params


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("scenes")
    corpus = Scenes(train=12, val=1, test=20, size=64).read(folder / "images")
    write_dataset(folder, "Scenes", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=0.0)
    return read_dataset(folder)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return normalize(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), dim=1)


def test_figures_are_the_curves_against_tf_idf_of_the_training_captions(whole: Dataset, images: torch.Tensor) -> None:
    split = whole.split("test")
    figures, curves = semantic_figures(images, whole, split, seed=3)
    vectorizer = TFIDF()
    vectorizer.fit(list(whole.split("train").captions["text"]), seed=0)
    queries = choose_queries(20, seed=3)
    relevant = relevance(image_vectors(vectorizer, split), queries)
    ndcg, pcc = semantic_curves(images[queries] @ images.T, relevant, queries, [8, 16])
    assert (figures["NDCG@8"], figures["PCC@16"]) == pytest.approx((100 * ndcg[8], 100 * pcc[16]))
    assert figures["NDCG_area"] == pytest.approx(50 * (ndcg[8] + ndcg[16]))
    assert list(curves["R"]) == [8, 16]
    assert figures["queries"] == 20
    # Vectors that are the proxy itself are perfect, and random scores are not.
    own = torch.from_numpy(image_vectors(vectorizer, split).toarray()).float()
    perfect, _ = semantic_figures(own, whole, split, seed=3)
    assert perfect["NDCG_area"] == pytest.approx(100, abs=1e-3)
    assert perfect["chance"]["NDCG_area"] < 90


def test_people_agree_with_what_is_nearer(
    whole: Dataset, images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three triplets of the split and one that is not: votes 4 1 0, 0 3 1 and 2 2 2."""
    monkeypatch.setattr("components.evaluate.meaning.FISHER", {"dim": 8, "centers": 2, "components": 8, "epochs": 1})
    split = whole.split("test")
    ids = list(split.images["image_id"])
    rows = [(0, 1, 2, 4, 1, 0), (3, 4, 5, 0, 3, 1), (6, 7, 8, 2, 2, 2)]
    lines = [f"{ids[q]},{ids[a]},{ids[b]},{o1},{o2},{o3}" for q, a, b, o1, o2, o3 in rows]
    path = tmp_path / "triplets.csv"
    path.write_text("\n".join(["query,first,second,o1,o2,o3", *lines, f"{ids[0]},elsewhere,{ids[1]},1,0,0"]))
    found = triplet_figures(path, images, whole, split, seed=0)
    agreed = [
        (o1 if float(images[q] @ images[a]) > float(images[q] @ images[b]) else o2) / (o1 + o2 + o3)
        for q, a, b, o1, o2, o3 in rows
    ]
    assert found["agreement"] == pytest.approx(100 * np.mean(agreed))
    assert (found["triplets"], found["left_out"]) == (3, 1)
    for name in ("tf_idf", "tf_idf_matched", "fisher_matched"):
        assert 0 <= found[name] <= 100
    semantic, _ = semantic_figures(images, whole, split, seed=0)
    tables = meaning_tables({"semantic": semantic, "triplets": found})
    assert tables[1].rows[0][1] == f"{found['agreement']:.1f}"
    path.write_text("query,first,second,o1,o2,o3\nno,such,image,1,0,0\n")
    with pytest.raises(ValueError, match="none of 1 triplets is of three images of the split"):
        triplet_figures(path, images, whole, split, seed=0)


def test_a_model_without_vectors_has_no_meaning_and_refuses_triplets(whole: Dataset) -> None:
    measured = Measured([], [], [], scores=lambda rows, columns: torch.zeros(len(rows), len(columns)))
    model, reader = torch.nn.Identity(), FittedVectorizer(TFIDF(min_count=1))
    found = measure_meaning(params(), model, measured, reader, whole)
    assert found.figures == {}
    assert len(found.curves) == 0
    with pytest.raises(ValueError, match="has no vector of an image alone"):
        measure_meaning(params(triplets="some.csv"), model, measured, reader, whole)
