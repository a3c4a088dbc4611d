"""How do texts compare with scikit-learn and sentence-transformers?

    make peers ONLY=text

On one core: tf-idf of 20,000 captions of random words, fitted and computed, with Snowball's stems
on both sides; the floor has no stems. Sentences by all-MiniLM-L6-v2 of the extra small: in torch,
where the vectors are compared first, and by the served encoder, which holds the network as an ONNX
graph.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from snowballstemmer import stemmer

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from benchmarks.speed.text import captions
from bifocal.backbones.networks import small_networks
from bifocal.onnx.encoders import Embedder
from bifocal.text.vectorizers import TFIDF, SentenceVectors
from pipelines.app.encoders import encoder_folder

TEXTS, COUNT, SENTENCES_AT_ONCE = 20_000, 256, 32


def compare_bags(report: Report) -> None:
    """Compare tf-idf."""
    texts, stem = captions(TEXTS), stemmer("english").stemWord

    def ours() -> None:
        vectorizer = TFIDF(stop_words=False)
        vectorizer.fit(texts, seed=0)
        vectorizer.transform(texts)

    def stems() -> Any:
        return TfidfVectorizer(
            analyzer=lambda text: [stem(word) for word in text.split()]
        ).fit_transform(texts)

    work = f"tf-idf, {TEXTS:,} captions"
    compare(report, work, "scikit-learn", ours, stems)
    compare(
        report, work, "scikit-learn (floor)", ours, lambda: TfidfVectorizer().fit_transform(texts)
    )


def compare_sentences(report: Report) -> None:
    """Compare the network in torch, and the served encoder."""
    folder, texts = small_networks(offline=True).sentences, captions(COUNT)
    vectorizer = SentenceVectors(path=folder, batch_size=SENTENCES_AT_ONCE)
    vectorizer.fit(texts, seed=0)
    peer = SentenceTransformer(str(folder), device="cpu")
    embedder = Embedder(encoder_folder("small", None), threads=1)

    def theirs(size: int) -> Any:
        encode = partial(
            peer.encode, batch_size=size, show_progress_bar=False, normalize_embeddings=True
        )
        return [encode(part) for part in parts(size)]

    def parts(size: int) -> list[list[str]]:
        return [texts[start : start + size] for start in range(0, len(texts), size)]

    expected = np.concatenate(theirs(SENTENCES_AT_ONCE))
    assert np.allclose(np.stack(vectorizer.transform(texts).values), expected, atol=1e-3)
    name = "sentence-transformers"
    compare(
        report,
        f"{COUNT} sentences in torch",
        name,
        lambda: vectorizer.transform(texts),
        partial(theirs, COUNT),
    )
    for size in (1, SENTENCES_AT_ONCE):
        served = partial(
            lambda size: [embedder.embed_sentences(part) for part in parts(size)], size
        )
        compare(
            report,
            f"{COUNT} sentences served, {size} at a time",
            name,
            served,
            partial(theirs, size),
        )


def main() -> None:
    """Compare the texts."""
    torch.set_num_threads(1)
    report = Report("peers.text")
    compare_bags(report)
    compare_sentences(report)
    write(report)


if __name__ == "__main__":
    main()
