"""Queries by text and by image, with a real model and a real vectorizer."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.models import TwoBranchModel, build_model
from bifocal.models.batch import ImageCaptionPairs, embed
from bifocal.search import Search, SearchIndex, TorchEmbedder
from bifocal.text.vectorizers.base import load_vectorizer


@pytest.fixture(scope="module")
def embedder(pairs: ImageCaptionPairs) -> TorchEmbedder:
    torch.manual_seed(0)
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 6,
            "image_encoder": "SMILEEncoder",
            "text_encoder": "GRUEncoder",
        },
        feature_dim=pairs.features.dim,
        text_dim=pairs.text.dim,
        text_format="tokens",
        vocabulary_size=len(pairs.text.vocabulary),
    )
    assert isinstance(model, TwoBranchModel)
    return TorchEmbedder(model, load_vectorizer(pairs.text.directory))


@pytest.fixture(scope="module")
def search(embedder: TorchEmbedder, pairs: ImageCaptionPairs) -> Search:
    return Search(SearchIndex.of(pairs.image_ids, embed(embedder.model, pairs)[0]), embedder)


def test_text_search_ranks_images_by_their_cosine(search: Search, pairs: ImageCaptionPairs) -> None:
    assert isinstance(search.embedder, TorchEmbedder)
    images, captions = embed(search.embedder.model, pairs)
    np.testing.assert_allclose(
        search.embed(["a red ball with mark0"])[0], captions[0].numpy(), atol=1e-6
    )
    order = (images @ captions[0]).argsort(descending=True).tolist()
    hits = search("a red ball with mark0", k=3)
    assert [hit.id for hit in hits] == [pairs.image_ids[row] for row in order[:3]]
    assert [hit.row for hit in search("a red ball with mark0", k=2, offset=1)] == order[1:3]


def test_image_search_excludes_the_query_and_adds_words(search: Search) -> None:
    index = search.index
    name = index.ids[3]
    hits = search(like=name, k=len(index))
    assert len(hits) == len(index) - 1
    assert name not in {hit.id for hit in hits}
    cube, sea = search.embed(["a blue cube", "the sea"])
    changed = search(like=name, plus=["a blue cube"], minus=["the sea"], k=4)
    assert (
        changed
        == Search(index).batch((index.vector(name) + cube - sea)[None], 4, exclude=[name])[0]
    )
    assert search(vector=index.vector(name), k=1)[0].score == pytest.approx(1.0, abs=1e-3)


def test_explain_adds_an_explanation_to_each_result(search: Search) -> None:
    hits = search("the sea", k=2, explain=lambda item_id, query: (item_id, query.shape))
    assert [hit.explanation for hit in hits] == [(hit.id, (6,)) for hit in hits]


@given(
    st.lists(st.sampled_from(["", "0" * 64, "a", "b", "c", "d"]), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(0, 5),
    st.integers(0, 99),
)
def test_copies_of_a_file_are_one_result(files: list[str], k: int, offset: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = {file: random.standard_normal(4) for file in files}
    known = ["a", "b", "c", "d"]
    own = [vectors[file] if file in known else random.standard_normal(4) for file in files]
    unit = (np.array(own) / np.linalg.norm(own, axis=1, keepdims=True)).astype(np.float16)
    ids = [f"i{row}" for row in range(len(files))]
    search = Search(SearchIndex(pa.table({"item_id": ids, "sha256": files}), unit))
    query = random.standard_normal(4).astype(np.float32)
    order = [hit.id for hit in search.batch(query[None], len(ids))[0]]
    expected: dict[str, list[str]] = {}
    for item_id in order:
        file = files[ids.index(item_id)]
        expected.setdefault(file if file in known else item_id, []).append(item_id)
    results = search(vector=query, k=k, offset=offset)
    assert [[hit.id, *hit.copies] for hit in results] == [*expected.values()][offset : offset + k]
    assert results.more == (len(expected) > offset + k)
