"""The graph of ELMo."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.export.elmo import GRAPH, compare_elmo, export_elmo
from bifocal.onnx.text.sentences import SentenceReader
from bifocal.text.vectorizers import ElmoLayers
from bifocal.text.vectorizers.base import load_vectorizer, write_text
from bifocal.training.pretraining.elmo import pretrain_elmo


@pytest.mark.slow
def test_exported_elmo_reads_sentences_as_the_vectorizer_does(tmp_path: Path) -> None:
    captions = ["A dog runs on the grass", "Two cats", "!"]
    vectorizer = ElmoLayers(
        projection_dim=4, lstm_dim=6, filters=((1, 3), (2, 4)), epochs=1, train=pretrain_elmo
    )
    vectorizer.fit(captions, seed=0)
    text = tmp_path / "text"
    text.mkdir()
    write_text(text, vectorizer, range(len(captions)), captions)
    export_elmo(text, tmp_path / GRAPH)
    assert max(parity.difference for parity in compare_elmo(text, tmp_path / GRAPH, seed=0)) < 1e-5
    sentences = ["", "A café, unlike t-shirts", "dog " * 150, "Two cats"]
    expected = load_vectorizer(text).vectorize(sentences)
    values, lengths = SentenceReader(tmp_path).read(sentences)
    assert lengths.tolist() == expected.lengths.tolist() == [1, 4, 100, 2]
    np.testing.assert_allclose(
        values, expected.values.numpy(), atol=1e-3, rtol=1e-3
    )  # float16 in both
    assert (np.abs(values - expected.values.numpy()) < 1e-6).mean() > 0.99
