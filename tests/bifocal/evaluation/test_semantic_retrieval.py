"""Semantic retrieval against tf-idf of the captions and against people; text modifiers."""

from dataclasses import replace
from math import log, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from snowballstemmer import stemmer
from torch.nn.functional import normalize

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.evaluation import SemanticRetrieval, SimilarImages, TextModifiers
from bifocal.evaluation.base import Subject
from bifocal.evaluation.semantic.caption_similarity import fisher_proxy, meteor_proxy, object_proxy
from bifocal.evaluation.semantic.human_triplets import triplet_metrics, triplet_rows
from bifocal.evaluation.semantic.semantic_retrieval import image_and_text, semantic_metrics
from bifocal.image_encoders import LinearEncoder, MultiLevelEncoder
from bifocal.metrics import choose_queries, semantic_curves
from bifocal.models import GroundingModel, TwoBranchModel
from bifocal.text import TextStore, tokenize
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer, training_documents, write_text
from bifocal.text_encoders import BagOfWordsEncoder, ElmoMixtureEncoder

FISHER = "bifocal.evaluation.semantic.caption_similarity.FISHER"
SMALL_FISHER = {"dim": 8, "centers": 2, "components": 1, "epochs": 1}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("scenes")
    corpus = Scenes(train=12, val=1, test=20, size=64).read(folder / "images")
    write_dataset(folder, "Scenes", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=0.0)
    return read_dataset(folder)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return normalize(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), dim=1)


def test_semantic_metrics_use_tf_idf_of_all_words_of_training_images(dataset: Dataset, images: torch.Tensor) -> None:
    split = dataset.split("test")
    metrics, curves = semantic_metrics(images, dataset, split, seed=3)
    train = dataset.split("train").captions.groupby("image_id", sort=False)["text"].agg(" ".join)
    stem = stemmer("english").stemWord
    peer = TfidfVectorizer(
        analyzer=lambda text: [stem(word) for word in tokenize(text) if word not in ENGLISH_STOP_WORDS]
    ).fit(train)
    joined = split.captions.groupby("image_id")["text"].agg(" ".join)
    vectors = torch.from_numpy(peer.transform(joined[split.images["image_id"]]).toarray())
    queries = choose_queries(20, seed=3)
    ndcg, pcc = semantic_curves(images[queries] @ images.T, vectors[queries] @ vectors.T, queries, [8, 16])
    assert (metrics["NDCG@8"], metrics["PCC@16"]) == pytest.approx((100 * ndcg[8], 100 * pcc[16]))
    assert metrics["NDCG_area"] == pytest.approx(50 * (ndcg[8] + ndcg[16]))
    assert list(curves["R"]) == [8, 16]
    assert metrics["queries"] == 20
    # Embeddings equal to the tf-idf vectors are perfect, random scores are not.
    perfect, _ = semantic_metrics(vectors.float(), dataset, split, seed=3)
    assert perfect["NDCG_area"] == pytest.approx(100, abs=1e-3)
    assert perfect["chance"]["NDCG_area"] < 90


def test_queries_with_text_are_the_sum_of_both_vectors(subject: Subject) -> None:
    """(V+T, V+T) with bags of words against loops over the captions."""
    captions = subject.dataset.captions
    vectorizer = TFIDF(documents="images")
    vectorizer.fit(training_documents(vectorizer, captions["image_id"].tolist(), captions["text"].tolist()), seed=0)
    with TemporaryDirectory() as folder:
        write_text(Path(folder), vectorizer, captions["caption_id"].tolist(), captions["text"].tolist())
        text = TextStore(Path(folder))
        torch.manual_seed(0)
        encoder = BagOfWordsEncoder(text.dim, 6)
        model = TwoBranchModel(LinearEncoder(subject.features.dim, 6), encoder, text_format="sparse")
        bags = replace(subject, model=model, text=text, vectorizer=FittedVectorizer(vectorizer))
        assert bags.image_embeddings is not None
        vectors = image_and_text(bags, bags.image_embeddings)
        result = SemanticRetrieval(with_text=True)(bags)
    for row, image_id in enumerate(bags.split.images["image_id"]):
        words = vectorizer.transform([" ".join(captions[captions["image_id"] == image_id]["text"])])
        assert words.indices is not None
        bag = torch.zeros(text.dim)
        bag[torch.from_numpy(words.indices[0]).long()] = torch.from_numpy(words.values[0])
        theta = encoder.projection.weight.detach() @ bag
        expected = normalize(bags.image_embeddings[row] + theta / theta.norm(), dim=0)
        torch.testing.assert_close(vectors[row], expected, atol=1e-5, rtol=1e-4)
    values, _ = semantic_metrics(bags.image_embeddings, bags.dataset, bags.split, bags.seed, vectors)
    assert result.metrics["semantic"]["with_text"] == pytest.approx(values["with_text"], abs=1e-4)
    assert {row.name for row in result.metric_rows()} >= {"semantic.NDCG_area", "semantic.with_text.NDCG_area"}
    assert values["with_text"] != {name: values[name] for name in values["with_text"]}
    assert list(result.tables["semantic_curves"]) == ["R", "NDCG", "PCC", "NDCG_with_text", "PCC_with_text"]
    with pytest.raises(ValueError, match="no single vector per caption"):
        SemanticRetrieval(with_text=True)(subject)


def test_triplet_metrics_agree_with_nearer_image(
    dataset: Dataset, images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three triplets of the split and one of another: votes 4 1 0, 0 3 1 and 2 2 2."""
    monkeypatch.setattr(FISHER, SMALL_FISHER)
    split = dataset.split("test")
    ids = list(split.images["image_id"])
    rows = [(0, 1, 2, 4, 1, 0), (3, 4, 5, 0, 3, 1), (6, 7, 8, 2, 2, 2)]
    lines = [f"{ids[q]},{ids[a]},{ids[b]},{o1},{o2},{o3}" for q, a, b, o1, o2, o3 in rows]
    path = tmp_path / "triplets.csv"
    path.write_text("\n".join(["query,first,second,o1,o2,o3", *lines, f"{ids[0]},elsewhere,{ids[1]},1,0,0"]))
    mirrored = images.flip(0)
    metrics = triplet_metrics(path, images, dataset, split, 0, with_text=mirrored)

    def agreement(queries: torch.Tensor) -> float:
        shares = [
            (o1 if float(queries[q] @ images[a]) > float(queries[q] @ images[b]) else o2) / (o1 + o2 + o3)
            for q, a, b, o1, o2, o3 in rows
        ]
        return 100 * sum(shares) / 3

    assert (metrics["agreement"], metrics["with_text"]) == pytest.approx((agreement(images), agreement(mirrored)))
    assert (metrics["triplets"], metrics["left_out"]) == (3, 1)
    for name in ("tf_idf", "fisher", "meteor"):
        assert 0 <= metrics[name] <= 100
    assert triplet_rows(metrics)[0].value == metrics["agreement"]
    # The same votes as single decisions also give the agreement of people with each other.
    decisions = [
        f"{ids[q]},{ids[a]},{ids[b]},{choice} {number},{choice}"
        for q, a, b, *votes in rows
        for choice, count in zip(("first", "second", "neither"), votes, strict=True)
        for number in range(count)
    ]
    path.write_text("\n".join(["query,first,second,user,choice", *decisions]))
    single = triplet_metrics(path, images, dataset, split, 0)
    assert {name: single[name] for name in metrics.keys() - {"with_text", "left_out"}} == pytest.approx(
        {name: metrics[name] for name in metrics.keys() - {"with_text", "left_out"}}
    )
    assert 0 < single["people"] < 100
    path.write_text("query,first,second,o1,o2,o3\nno,such,image,1,0,0\n")
    with pytest.raises(ValueError, match="none of 1 triplets has all of its images in the evaluated split"):
        triplet_metrics(path, images, dataset, split, seed=0)


def test_proxies_rank_an_image_with_the_same_captions_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FISHER, SMALL_FISHER)
    captions = {0: ["a red dog runs", "green grass"], 1: ["a red dog runs", "green grass"], 2: ["two men eat pizza"]}
    training = [text for texts in captions.values() for text in texts]
    for proxy in (meteor_proxy(captions), fisher_proxy(training, captions, seed=0)):
        assert proxy(0, 1) == pytest.approx(1)
        assert proxy(0, 2) < 0.9


def test_object_proxy_is_tf_idf_of_the_numbers_of_objects(dataset: Dataset) -> None:
    ids = {name: list(dataset.split(name).images["image_id"]) for name in ("train", "test")}
    counts = {
        **{name: {"dog": 1.0} for name in ids["train"][:9]},
        ids["train"][9]: {"dog": 2.0, "cup": 1.0},
        ids["test"][0]: {"dog": 1.0, "cup": 3.0},
        ids["test"][1]: {"dog": 4.0},
        ids["test"][2]: {"cup": 1.0, "unseen": 7.0},
    }
    rows = [(image, "synsets", name, value) for image, row in counts.items() for name, value in row.items()]
    labels = pd.DataFrame(rows, columns=["image_id", "task", "label", "value"])
    labeled = replace(dataset, labels=labels)
    proxy = object_proxy(labeled, labeled.split("test"))

    documents = {"dog": 10, "cup": 1}  # of 12 training images

    def vector(row: dict[str, float]) -> dict[str, float]:
        weights = {name: row.get(name, 0.0) * (log(13 / (1 + count)) + 1) for name, count in documents.items()}
        norm = sqrt(sum(weight**2 for weight in weights.values()))
        return {name: weight / norm for name, weight in weights.items()}

    for first, second in ((0, 1), (0, 2), (1, 2)):
        one, other = (vector(counts[ids["test"][row]]) for row in (first, second))
        assert proxy(first, second) == pytest.approx(sum(one[name] * other[name] for name in documents))
    assert proxy(0, 3) == 0.0  # an image without objects


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
