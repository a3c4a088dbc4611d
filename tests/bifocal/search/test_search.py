"""Search against all scores at once, with real stores and a real vectorizer."""

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
def test_exact_search_is_sorting(k: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", block)
    index, query = example()
    scores = (index.embeddings @ query).tolist()
    expected = sorted(range(50), key=lambda row: -scores[row])[:k]
    found = index.nearest(3.0 * query, k)
    assert [result.image_id for result in found] == [f"image {row}" for row in expected]
    assert [result.score for result in found] == pytest.approx([scores[row] for row in expected])


def test_equal_scores_keep_the_order_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 2)
    index = Index(list("abcde"), torch.tensor([[1.0, 0.0]]).repeat(5, 1))
    assert [found.image_id for found in index.nearest(torch.tensor([1.0, 0.0]), 3)] == ["a", "b", "c"]


def test_approximate_search_that_looks_everywhere_is_exact(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    index, query = example(500)
    exact = index.nearest(query, 10)
    index.build_approximate(cells=4, probes=4)
    index.save(tmp_path)
    for searched in (index, Index.load(tmp_path)):
        found = searched.nearest(query, 10)
        assert [result.image_id for result in found] == [result.image_id for result in exact]
        assert [result.score for result in found] == pytest.approx([result.score for result in exact], abs=1e-5)


def test_index_survives_the_disk(tmp_path: Path) -> None:
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


def test_by_text_is_the_caption_s_own_ranking(search: Search, pairs: ImageCaptionPairs) -> None:
    images, captions = embed(search.model, pairs)
    torch.testing.assert_close(search.text("a red ball with mark0"), captions[0])
    best = (images @ captions[0]).argmax()
    assert search.by_text("a red ball with mark0", k=1)[0].image_id == pairs.image_ids[best]


def test_by_image_leaves_it_out_and_adds_words(search: Search) -> None:
    index = search.index
    name = index.image_ids[3]
    found = search.by_image(name, k=len(index))
    assert len(found) == len(index) - 1
    assert name not in {result.image_id for result in found}
    query = index.embedding(name) + search.text("a blue cube") - search.text("the sea")
    changed = search.by_image(name, plus=["a blue cube"], minus=["the sea"], k=4)
    assert changed == index.nearest(query, 4, leave_out=name)
    by_vector = search.by_image(index.embedding(name), k=1)
    assert by_vector[0].score == pytest.approx(1.0)


def test_results_are_explained_on_request(search: Search) -> None:
    found = search.by_text("the sea", k=2, explain=lambda image_id, query: (image_id, query.shape))
    assert [result.explanation for result in found] == [(result.image_id, (6,)) for result in found]


def test_what_cannot_be_searched_is_refused() -> None:
    index, _ = example()
    with pytest.raises(ValueError, match="no image 'sea' among its 50"):
        index.embedding("sea")
    with pytest.raises(ValueError, match=r"a query \(3,\), expected \(8,\), not zero"):
        index.nearest(torch.ones(3), 1)
    with pytest.raises(ValueError, match="2 names, 1 of them different, for 2 embeddings"):
        Index(["a", "a"], torch.eye(2))
