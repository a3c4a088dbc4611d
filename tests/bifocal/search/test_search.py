"""Exact and approximate search; queries by text and by image with real stores and a real vectorizer."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.batch import ImageCaptionPairs
from bifocal.embedding import embed
from bifocal.models import TwoBranchModel, build_model
from bifocal.search import Index, Search
from bifocal.search import index as blocks
from bifocal.text.vectorizers.base import load_vectorizer


def example(images: int = 50, dim: int = 8) -> tuple[Index, torch.Tensor]:
    torch.manual_seed(images)
    vectors = normalize(torch.randn(images + 1, dim), dim=1)
    return Index([f"image {row}" for row in range(images)], vectors[:-1]), vectors[-1]


@pytest.mark.parametrize("block", [7, 1000])
@pytest.mark.parametrize("k", [1, 10, 80])
def test_exact_search_sorts_the_scores(k: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", block)
    index, query = example()
    scores = (index.embeddings @ query).tolist()
    expected = sorted(range(50), key=lambda row: -scores[row])[:k]
    hits = index.nearest(3.0 * query, k)
    assert [hit.image_id for hit in hits] == [f"image {row}" for row in expected]
    assert [hit.score for hit in hits] == pytest.approx([scores[row] for row in expected])


def test_equal_scores_keep_the_order_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 2)
    index = Index(list("abcde"), torch.tensor([[1.0, 0.0]]).repeat(5, 1))
    assert [hit.image_id for hit in index.nearest(torch.tensor([1.0, 0.0]), 3)] == ["a", "b", "c"]


def test_approximate_search_of_all_lists_is_exact(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    index, query = example(500)
    exact = index.nearest(query, 10)
    index.build_approximate(n_lists=4, n_probes=4)
    index.save(tmp_path)
    for searched in (index, Index.load(tmp_path)):
        hits = searched.nearest(query, 10)
        assert [hit.image_id for hit in hits] == [hit.image_id for hit in exact]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in exact], abs=1e-5)


@pytest.mark.parametrize("approximate", [False, True])
def test_biases_change_the_order_of_corrected_searches_alone(tmp_path: Path, approximate: bool) -> None:
    index, query = example(500)
    plain = index.nearest(query, 10)
    index = Index(index.image_ids, index.embeddings, bias=0.3 * torch.randn(500))
    assert index.bias is not None
    scores = (index.embeddings @ query).tolist()
    expected = sorted(range(500), key=lambda row: -scores[row] - float(index.bias[row]))[:10]
    if approximate:
        pytest.importorskip("faiss")
        index.build_approximate(n_lists=4, n_probes=4)
    index.save(tmp_path)
    for searched in (index, Index.load(tmp_path)):
        hits = searched.nearest(query, 10, corrected=True)
        assert [hit.image_id for hit in hits] == [f"image {row}" for row in expected]
        assert [hit.score for hit in hits] == pytest.approx([scores[row] for row in expected], abs=1e-5)
        assert [hit.image_id for hit in searched.nearest(query, 10)] == [hit.image_id for hit in plain]
    with pytest.raises(ValueError, match="one number per image"):
        Index(["a"], torch.ones(1, 1), bias=torch.zeros(2))


def test_index_is_the_same_after_save_and_load(tmp_path: Path) -> None:
    index, query = example()
    index.save(tmp_path)
    assert Index.load(tmp_path).nearest(query, 5) == index.nearest(query, 5)
    with pytest.raises(FileNotFoundError, match=r"holds no index\.safetensors"):
        Index.load(tmp_path / "elsewhere")


@pytest.fixture(scope="module")
def search(pairs: ImageCaptionPairs) -> Search:
    torch.manual_seed(0)
    model = build_model(
        {"name": "TwoBranchModel", "dim": 6, "image_encoder": "SMILEEncoder", "text_encoder": "GRUEncoder"},
        feature_dim=pairs.features.dim,
        text_dim=pairs.text.dim,
        text_format="tokens",
        vocabulary_size=len(pairs.text.vocabulary),
    )
    assert isinstance(model, TwoBranchModel)
    return Search(model, load_vectorizer(pairs.text.directory), Index(pairs.image_ids, embed(model, pairs)[0]))


def test_text_search_ranks_images_by_their_cosine(search: Search, pairs: ImageCaptionPairs) -> None:
    images, captions = embed(search.model, pairs)
    torch.testing.assert_close(search.embed("a red ball with mark0"), captions[0])
    best = (images @ captions[0]).argmax()
    assert search.text("a red ball with mark0", k=1)[0].image_id == pairs.image_ids[best]


def test_image_search_excludes_the_query_and_adds_words(search: Search) -> None:
    index = search.index
    name = index.image_ids[3]
    hits = search.image(name, k=len(index))
    assert len(hits) == len(index) - 1
    assert name not in {hit.image_id for hit in hits}
    query = index.embedding(name) + search.embed("a blue cube") - search.embed("the sea")
    changed = search.image(name, plus=["a blue cube"], minus=["the sea"], k=4)
    assert changed == index.nearest(query, 4, exclude=name)
    by_vector = search.image(index.embedding(name), k=1)
    assert by_vector[0].score == pytest.approx(1.0)


def test_explain_adds_an_explanation_to_each_result(search: Search) -> None:
    hits = search.text("the sea", k=2, explain=lambda image_id, query: (image_id, query.shape))
    assert [hit.explanation for hit in hits] == [(hit.image_id, (6,)) for hit in hits]


def test_search_rejects_unknown_images_and_wrong_vectors() -> None:
    index, _ = example()
    with pytest.raises(ValueError, match="no image 'sea' among its 50"):
        index.embedding("sea")
    with pytest.raises(ValueError, match=r"query \(3,\), expected a vector \(8,\) that is not zero"):
        index.nearest(torch.ones(3), 1)
    with pytest.raises(ValueError, match="2 ids, 1 of them different, and 2 embeddings"):
        Index(["a", "a"], torch.eye(2))
