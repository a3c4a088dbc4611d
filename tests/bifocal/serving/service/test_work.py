"""Processor time of requests below all limits, at 200,000 items and a costly text encoder."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from bifocal.search.index.index import SearchIndex
from bifocal.search.keywords import Keywords
from bifocal.search.search import Search
from bifocal.serving.service.app import create_app
from bifocal.serving.service.models import SearchRelease
from bifocal.serving.service.settings import Settings
from tests.bifocal.search.priced import COUNT, SECONDS, WORDS, queries, table
from tests.bifocal.serving.runs import LoadedSource

TOKEN_SECONDS, MOST_TOKENS = 3e-4, 256
"""Time of a token in MiniLM, each letter a token, and the tokens that it reads."""


class CostlyEmbedder:
    """An embedder whose sentences take the time of a transformer."""

    def __init__(self, embedder: Any) -> None:
        self.embedder, self.inputs = embedder, embedder.inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def embed_sentences(self, sentences: Sequence[str]) -> Any:
        tokens = len(sentences) * min(max(map(len, sentences)), MOST_TOKENS)
        end = time.thread_time() + tokens * TOKEN_SECONDS
        while time.thread_time() < end:
            pass
        return self.embedder.embed_sentences(sentences)


@pytest.fixture(scope="module")
def client(served: SearchRelease) -> Iterator[TestClient]:
    items, dimension = table(COUNT), served.index.description.dimension
    vectors = np.random.default_rng(0).standard_normal((COUNT, dimension)).astype(np.float16)
    index = SearchIndex(items, vectors)
    index.keywords = Keywords.of(items)
    embedder: Any = CostlyEmbedder(served.embedder)
    release = SearchRelease(Search(index, embedder), embedder, served.version)
    app = create_app(LoadedSource(release), Settings())
    with TestClient(app, base_url="http://localhost") as opened:
        yield opened


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """A route of queries or vectors, and a body."""
    query = draw(queries())
    length, rows = draw(st.sampled_from([20, 60, 500, 9_990])), draw(st.sampled_from([1, 60, 4096]))
    sentence = (" ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1))) + " ") * 1000
    sentences = [sentence[:length].strip()] * rows
    tensor = {"name": "text", "shape": [rows], "datatype": "BYTES", "data": sentences}
    where = {"where": dict(query.where or {}), "k": 100, "offset": 900}
    search = {**where, "text": query.sentence, "mode": query.mode, "group": query.group}
    sums = {**where, "text": sentences[0], "plus": sentences[:8], "minus": sentences[:8]}
    return draw(
        st.sampled_from(
            [
                ("/api/v1/search", search),
                ("/api/v1/search", sums),
                ("/api/v1/browse", where),
                ("/v2/models/bifocal/infer", {"inputs": [tensor]}),
            ]
        )
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(request=requests())
def test_a_request_takes_less_than_a_second(client: TestClient, request: tuple[str, Any]) -> None:
    start = time.process_time()
    answer = client.post(request[0], json=request[1])
    assert time.process_time() - start < SECONDS
    assert answer.status_code in (200, 400, 413)
