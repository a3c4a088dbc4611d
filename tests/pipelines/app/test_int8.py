"""A trained run whose graphs are int8, as ``export_onnx.precision: int8`` writes them: the vector
of an item does not depend on the other items of its batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.export.graphs.quantization import quantize_graph
from bifocal.onnx.encoders import Embedder
from pipelines.app.demo import unpack

WORDS = ["a", "red", "blue", "star", "heart", "big", "tiny", "on", "sand", "water", "two", "above"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Embedder, list[bytes]]:
    """The trained model of the demo with int8 graphs, and its images."""
    folder = tmp_path_factory.mktemp("int8")
    unpack(folder)
    graphs = sorted((folder / "artifacts" / "onnx").glob("*.onnx"))
    sizes = [file.stat().st_size for file in graphs]
    for file in graphs:
        quantize_graph(file)
    assert sum(file.stat().st_size for file in graphs) < 0.5 * sum(sizes)
    images = [file.read_bytes() for file in sorted((folder / "images").iterdir())[:20]]
    return Embedder(folder / "artifacts" / "onnx"), images


@given(
    texts=st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=25).map(" ".join),
        min_size=2,
        max_size=8,
    )
)
def test_a_sentence_has_the_same_vector_in_any_company(
    embedder: tuple[Embedder, list[bytes]], texts: list[str]
) -> None:
    together = embedder[0].embed_sentences(texts)
    alone = np.concatenate([embedder[0].embed_sentences([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@given(rows=st.lists(st.integers(0, 19), min_size=2, max_size=6))
def test_an_image_has_the_same_vector_in_any_company(
    embedder: tuple[Embedder, list[bytes]], rows: list[int]
) -> None:
    model, images = embedder
    together = model.embed_images([images[row] for row in rows])
    alone = np.concatenate([model.embed_images([images[row]]) for row in rows])
    np.testing.assert_allclose(together, alone, atol=1e-5)
