"""The metric that chooses the epoch: recall, phrases, pointing and semantic retrieval."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.metrics import ndcg_score
from torch import nn

from bifocal.evaluation import PointingGame
from bifocal.evaluation.base import Subject
from bifocal.image_encoders import LinearEncoder
from bifocal.localization import SMILERegions
from bifocal.metrics import choose_queries, retrieval_ranks
from bifocal.models import TwoBranchModel, build_model
from bifocal.models.batch import ImageCaptionPairs, embed
from bifocal.models.phrase_locator import point_at_phrases
from bifocal.training import validators
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs
from bifocal.training.semantic_pairs import SemanticPairs
from bifocal.training.validators import (
    Pointing,
    Recall,
    Semantic,
    model_ranks,
    phrase_recall,
    recall_metrics,
)
from tests.bifocal.evaluation.small import INPUTS, read_subject, write_inputs


def test_recall_validator_returns_the_recalls_and_their_sum(
    pairs: ImageCaptionPairs, new_model: Callable[[], TwoBranchModel]
) -> None:
    model = new_model().train()
    metrics = recall_metrics(model_ranks(model, pairs))
    ranks = retrieval_ranks(*embed(model, pairs), pairs.image_of_caption)
    for direction, rank in zip(("caption_retrieval", "image_retrieval"), ranks, strict=True):
        for k in (1, 5, 10):
            assert metrics[f"{direction}.R@{k}"] == pytest.approx(100 * rank.recall(k))
    assert metrics[Recall.monitor] == pytest.approx(
        sum(value for name, value in metrics.items() if "R@" in name)
    )
    assert not model.training


def test_recall_validator_rejects_a_model_that_neither_embeds_nor_ranks(
    pairs: ImageCaptionPairs,
) -> None:
    with pytest.raises(TypeError, match="Identity cannot be validated"):
        model_ranks(nn.Identity(), pairs)


def test_recall_ranks_the_first_images_of_the_split(
    inputs: TrainingInputs, new_model: Callable[[], TwoBranchModel]
) -> None:
    validation, model = inputs.captions("val"), new_model()
    images, captions = embed(model, validation)
    first = validation.image_of_caption < 3
    ranks = retrieval_ranks(images[:3], captions[first], validation.image_of_caption[first])
    metrics = Recall(images=3).prepare(inputs)(model)
    assert metrics["caption_retrieval.R@1"] == pytest.approx(100 * ranks[0].recall(1))
    assert metrics["image_retrieval.R@1"] == pytest.approx(100 * ranks[1].recall(1))
    assert inputs.captions("val", 3).image_ids == validation.image_ids[:3]
    assert Recall().prepare(inputs)(model) == recall_metrics(model_ranks(model, validation))


def test_phrase_validator_counts_correct_best_proposals(phrase_boxes: PhraseBoxPairs) -> None:
    torch.manual_seed(0)
    text_dim = phrase_boxes.vectorizer.vectorize(["a"]).values.shape[1]
    ref = {
        "name": "TwoBranchModel",
        "dim": 8,
        "image_encoder": "LinearEncoder",
        "text_encoder": "BagOfWordsEncoder",
    }
    model = build_model(ref, feature_dim=12, text_dim=text_dim, text_format="sparse").eval()
    hits = []
    with torch.no_grad():
        for row, phrase in enumerate(phrase_boxes.phrases):
            query = model.embed_captions(phrase_boxes.vectorizer.vectorize([phrase]))[0]
            for image in [image for of, image in phrase_boxes.phrase_images.tolist() if of == row]:
                proposals = image * phrase_boxes.regions + torch.arange(6)
                scores = (model.embed_images(phrase_boxes.boxes(proposals)) @ query).tolist()
                best = proposals[scores.index(max(scores))]
                hits.append(bool(phrase_boxes.overlaps(torch.tensor([row]), best)))
    assert any(hits)
    assert len(hits) == 24 * 2 + 1
    assert phrase_recall(phrase_boxes, model) == {
        "phrase_R@1": pytest.approx(100 * sum(hits) / len(hits))
    }


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("pointing")
    folders = {name: folder / name for name in INPUTS}
    for path in folders.values():
        path.mkdir()
    write_inputs(folders)
    return read_subject(folder, "val")


def inputs_of(subject: Subject) -> TrainingInputs:
    return TrainingInputs(subject.dataset, subject.features, subject.text, subject.vectorizer)


def test_pointing_is_the_accuracy_of_the_pointing_game(subject: Subject) -> None:
    validator = Pointing().prepare(inputs_of(subject))
    game = PointingGame()(subject).metrics["pointing"]
    for _ in range(2):  # the second call reads the vectorized phrases from memory
        assert validator(subject.model.train()) == {"pointing": pytest.approx(game["accuracy"])}
        assert not subject.model.training


def test_pointing_draws_the_same_phrases_each_time(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(subject.split.phrases)
    drawn: list[list[int]] = []

    def record(locator: Any, dataset: Any, rows: list[int]) -> Any:
        drawn.append(rows)
        return point_at_phrases(locator, dataset, rows)

    monkeypatch.setattr(validators, "point_at_phrases", record)
    for _ in range(2):
        Pointing(phrases=count - 1, localizer=SMILERegions()).prepare(inputs_of(subject))(
            subject.model
        )
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == count - 1
    with pytest.raises(ValueError, match="phrases is 0: expected 1 or more"):
        Pointing(phrases=0)


def test_pointing_rejects_data_and_models_that_cannot_point(subject: Subject) -> None:
    none = replace(subject.dataset, phrases=subject.dataset.phrases.iloc[:0])
    with pytest.raises(ValueError, match="no phrases with boxes to point at"):
        Pointing().prepare(replace(inputs_of(subject), dataset=none))
    model = nn.Module()
    model.image_encoder = LinearEncoder(4, 4)
    with pytest.raises(TypeError, match="LinearEncoder has no localizer"):
        Pointing().prepare(inputs_of(subject))(model)


def new_model(semantic: SemanticPairs) -> nn.Module:
    torch.manual_seed(0)
    ref = {
        "name": "TwoBranchModel",
        "dim": 8,
        "image_encoder": "LinearEncoder",
        "text_encoder": "BagOfWordsEncoder",
    }
    pairs = semantic.pairs
    return build_model(
        ref, feature_dim=pairs.features.dim, text_dim=pairs.text.dim, text_format="sparse"
    )


def test_semantic_validator_measures_ndcg_on_a_subset(semantic: SemanticPairs) -> None:
    """scikit-learn's NDCG of each of 12 drawn images among the other 11."""
    model = new_model(semantic)
    rows = choose_queries(40, seed=0, count=12)
    images, texts = (
        semantic.embed_images(model, rows).numpy(),
        semantic.vectors[rows.numpy()].toarray(),
    )
    scores, relevance = images @ images.T, texts @ texts.T
    others = [[other for other in range(12) if other != query] for query in range(12)]
    ndcg = [
        ndcg_score(*(s[query, others[query]][None] for s in (relevance, scores)), k=8)
        for query in range(12)
    ]
    assert Semantic(images=12).of_pairs(semantic)(model) == {
        "ndcg": pytest.approx(100 * sum(ndcg) / 12)
    }
    assert Semantic().of_pairs(semantic)(model) != Semantic(images=12).of_pairs(semantic)(model)


def test_semantic_validator_gives_images_that_embed_their_texts_full_marks(
    semantic: SemanticPairs,
) -> None:
    texts = semantic.texts(torch.arange(len(semantic))).values

    class Ideal(nn.Module):
        single_vector = True
        device = torch.device("cpu")
        shown = 0

        def embed_images(self, regions: tuple[torch.Tensor, ...]) -> torch.Tensor:
            rows = slice(self.shown, self.shown + len(regions[0]))
            self.shown += len(regions[0])
            return texts[rows]

    assert Semantic().of_pairs(semantic)(Ideal())["ndcg"] == pytest.approx(100)


def test_semantic_validator_rejects_a_model_without_single_vectors(semantic: SemanticPairs) -> None:
    with pytest.raises(TypeError, match="no single vector"):
        Semantic().of_pairs(semantic)(nn.Identity())
