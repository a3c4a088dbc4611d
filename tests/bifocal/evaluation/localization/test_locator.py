"""Phrases located in the context of their sentence."""

from dataclasses import replace

import pandas as pd
import torch

from bifocal.evaluation import PointingGame
from bifocal.evaluation.base import Subject
from bifocal.evaluation.localization.locator import choose_locator
from bifocal.image_encoders import MultiLevelEncoder
from bifocal.localization import MultiLevelHeatmap, phrase_heatmap, sentence_heatmap
from bifocal.models import GroundingModel
from bifocal.models.phrase_locator import phrases_in_context
from bifocal.text.elmo import Elmo, ElmoOptions
from bifocal.text.vectorizers import ElmoLayers
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.text_encoders import ElmoMixtureEncoder
from tests.bifocal.evaluation.small import DIM


def test_locator_uses_words_of_phrase_in_its_sentence(subject: Subject) -> None:
    torch.manual_seed(0)
    vectorizer = ElmoLayers()
    vectorizer.elmo = Elmo(ElmoOptions(filters=((1, 4),), lstm_dim=4, projection_dim=4)).eval()
    texts = ElmoMixtureEncoder(vectorizer.format.dim, 6, layers=vectorizer.format.layers)
    model = GroundingModel(
        MultiLevelEncoder(DIM, 6, levels=1), texts, text_format="contextual"
    ).eval()
    fitted = FittedVectorizer(vectorizer)
    few = replace(subject.dataset, phrases=subject.split.phrases.iloc[:8])
    grounding = replace(subject, model=model, vectorizer=fitted, dataset=few)
    assert not PointingGame()(grounding).skipped
    locator = choose_locator(grounding, None).locator
    # The first phrase twice, once without its sentence.
    rows = phrases_in_context(subject.split).iloc[[0, 0]].reset_index(drop=True)
    rows.at[1, "sentence"] = None
    scores = locator.locate(rows).scores
    sentence, phrase = rows["sentence"][0], rows["phrase"][0]
    with torch.inference_mode():
        regions = subject.features.gather(subject.features.rows([rows["image_id"][0]]))
        (cells,) = model.embed_images(regions)
        _, words = model.embed_captions(fitted.vectorize([sentence]))
        alone, _ = model.embed_captions(fitted.vectorize([phrase]))
        before = len(sentence[: sentence.index(phrase)].split())
        expected = phrase_heatmap(words[0, before : before + len(phrase.split())], cells)
        torch.testing.assert_close(scores[0], expected)
        torch.testing.assert_close(scores[1], sentence_heatmap(alone[0], cells))
        without_context = replace(
            locator, localizer=MultiLevelHeatmap(text_context="phrase")
        ).locate(rows)
        torch.testing.assert_close(without_context.scores, scores[[1, 1]])


def test_phrases_in_context_counts_occurrences_and_drops_equal_sentence(subject: Subject) -> None:
    captions = pd.DataFrame(
        {"caption_id": [0, 1], "image_id": ["x", "x"], "text": ["A man and a man.", "A dog!"]}
    )
    columns = {"phrase_id": range(4), "image_id": "x", "phrase": ["a man", "a man", "a dog", "cat"]}
    phrases = pd.DataFrame(columns | {"caption_id": pd.array([0, 0, 1, None], dtype="Int64")})
    table = phrases_in_context(replace(subject.dataset, captions=captions, phrases=phrases))
    assert list(table["sentence"]) == ["A man and a man.", "A man and a man.", None, None]
    assert list(table["occurrence"]) == [0, 1, 0, 0]
