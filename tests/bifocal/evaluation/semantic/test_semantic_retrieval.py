"""Semantic retrieval against tf-idf of captions."""

from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import pytest
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from snowballstemmer import stemmer
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.evaluation import SemanticRetrieval, SimilarImages, TextModifiers
from bifocal.evaluation.base import Subject
from bifocal.evaluation.semantic.semantic_retrieval import (
    cosine_by_relevance,
    image_and_text,
    semantic_metrics,
)
from bifocal.image_encoders import LinearEncoder, MultiLevelEncoder
from bifocal.metrics import choose_queries, semantic_curves
from bifocal.models import GroundingModel, TwoBranchModel
from bifocal.text import TextStore, tokenize
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer, training_documents, write_text
from bifocal.text_encoders import BagOfWordsEncoder, ElmoMixtureEncoder


def test_semantic_metrics_use_tf_idf_of_all_words_of_training_images(
    dataset: Dataset, images: torch.Tensor
) -> None:
    split = dataset.split("test")
    metrics, tables = semantic_metrics(images, dataset, split, seed=3)
    train = dataset.split("train").captions.groupby("image_id", sort=False)["text"].agg(" ".join)
    stem = stemmer("english").stemWord
    peer = TfidfVectorizer(
        analyzer=lambda text: [
            stem(word) for word in tokenize(text) if word not in ENGLISH_STOP_WORDS
        ]
    ).fit(train)
    joined = split.captions.groupby("image_id")["text"].agg(" ".join)
    vectors = torch.from_numpy(peer.transform(joined[split.images["image_id"]]).toarray())
    queries = choose_queries(20, seed=3)
    ndcg, pcc = semantic_curves(
        images[queries] @ images.T, vectors[queries] @ vectors.T, queries, [8, 16]
    )
    assert (metrics["NDCG@8"], metrics["PCC@16"]) == pytest.approx((100 * ndcg[8], 100 * pcc[16]))
    assert metrics["NDCG_area"] == pytest.approx(50 * (ndcg[8] + ndcg[16]))
    assert list(tables["semantic_curves"]["R"]) == [8, 16]
    generator = torch.Generator().manual_seed(3)
    draws = [
        100
        * semantic_curves(
            torch.rand(20, 20, generator=generator), vectors[queries] @ vectors.T, queries, [8]
        )[0][8]
        for _ in range(5)
    ]
    assert metrics["chance"]["NDCG@8"] == pytest.approx(mean(draws))
    assert metrics["chance_std"]["NDCG@8"] == pytest.approx(
        sqrt(mean((draw - mean(draws)) ** 2 for draw in draws))
    )
    assert metrics["queries"] == 20
    # Embeddings equal to the tf-idf vectors are perfect, random scores are not.
    perfect, _ = semantic_metrics(vectors.float(), dataset, split, seed=3)
    assert (perfect["NDCG_area"], perfect["correlation"]) == pytest.approx((100, 100), abs=1e-3)
    assert perfect["chance"]["NDCG_area"] < 90


def test_cosine_by_relevance_is_correlation_and_means_over_pairs() -> None:
    """Figure 2, right, against loops over the pairs: 3 queries of 14 images, 39 pairs in 20 bins of
    2 or 1."""
    generator = torch.Generator().manual_seed(0)
    cosines = 2 * torch.rand(3, 14, generator=generator, dtype=torch.float64) - 1
    relevant = torch.rand(3, 14, generator=generator, dtype=torch.float64)
    queries = [2, 0, 13]
    correlation, table = cosine_by_relevance(cosines, relevant, torch.tensor(queries))
    pairs = sorted(
        (float(relevant[row, answer]), float(cosines[row, answer]))
        for row, query in enumerate(queries)
        for answer in range(14)
        if answer != query
    )
    x, y = (mean(pair[side] for pair in pairs) for side in (0, 1))
    covariance = sum((a - x) * (b - y) for a, b in pairs)
    norms = sqrt(sum((a - x) ** 2 for a, _ in pairs) * sum((b - y) ** 2 for _, b in pairs))
    assert correlation == pytest.approx(100 * covariance / norms)
    bins = [pairs[start : start + 2] for start in range(0, 39, 2)]
    expected = [[100 * mean(pair[side] for pair in part) for side in (0, 1)] for part in bins]
    assert table.to_numpy() == pytest.approx(torch.tensor(expected).numpy())


def test_queries_with_text_are_the_sum_of_both_vectors(subject: Subject) -> None:
    """(V+T, V+T) with bags of words against loops over the captions."""
    captions = subject.dataset.captions
    vectorizer = TFIDF(documents="images")
    vectorizer.fit(
        training_documents(vectorizer, captions["image_id"].tolist(), captions["text"].tolist()),
        seed=0,
    )
    with TemporaryDirectory() as folder:
        write_text(
            Path(folder), vectorizer, captions["caption_id"].tolist(), captions["text"].tolist()
        )
        text = TextStore(Path(folder))
        torch.manual_seed(0)
        encoder = BagOfWordsEncoder(text.dim, 6)
        model = TwoBranchModel(
            LinearEncoder(subject.features.dim, 6), encoder, text_format="sparse"
        )
        bags = replace(subject, model=model, text=text, vectorizer=FittedVectorizer(vectorizer))
        assert bags.image_embeddings is not None
        vectors = image_and_text(bags, bags.image_embeddings)
        result = SemanticRetrieval(with_text=True, drawn_triplets=2)(bags)
    for row, image_id in enumerate(bags.split.images["image_id"]):
        words = vectorizer.transform([" ".join(captions[captions["image_id"] == image_id]["text"])])
        assert words.indices is not None
        bag = torch.zeros(text.dim)
        bag[torch.from_numpy(words.indices[0]).long()] = torch.from_numpy(words.values[0])
        theta = encoder.projection.weight.detach() @ bag
        expected = normalize(bags.image_embeddings[row] + theta / theta.norm(), dim=0)
        torch.testing.assert_close(vectors[row], expected, atol=1e-5, rtol=1e-4)
    values, _ = semantic_metrics(
        bags.image_embeddings, bags.dataset, bags.split, bags.seed, vectors
    )
    assert result.metrics["semantic"]["with_text"] == pytest.approx(values["with_text"], abs=1e-4)
    assert {row.name for row in result.metric_rows()} >= {
        "semantic.NDCG_area",
        "semantic.with_text.NDCG_area",
    }
    assert len(result.tables["drawn_triplets"]) == 2
    assert values["with_text"] != {name: values[name] for name in values["with_text"]}
    assert list(result.tables["semantic_curves"]) == [
        "R",
        "NDCG",
        "PCC",
        "NDCG_with_text",
        "PCC_with_text",
    ]
    with pytest.raises(ValueError, match="no single vector per caption"):
        SemanticRetrieval(with_text=True)(subject)


def test_evaluators_of_single_vectors_skip_grounding_model_and_triplets_are_rejected(
    subject: Subject,
) -> None:
    texts = ElmoMixtureEncoder(8, 6, layers=3)
    model = GroundingModel(MultiLevelEncoder(12, 6, levels=1), texts, text_format="contextual")
    grounding = replace(subject, model=model)
    for evaluator in (SemanticRetrieval(), TextModifiers(), SimilarImages()):
        result = evaluator(grounding)
        assert "GroundingModel has no single vector" in result.skipped
        assert (result.metrics, result.report_sections()) == ({}, [])
    with pytest.raises(ValueError, match="give human_triplets too"):
        SemanticRetrieval(generated_captions="captions.csv")
    with pytest.raises(
        ValueError, match="GroundingModel has no single vector per image to compare"
    ):
        SemanticRetrieval(Path("some.csv"))(grounding)
