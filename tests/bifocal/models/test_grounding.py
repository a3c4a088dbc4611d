"""Grounding model and loss against loops over eq. (1)-(10)."""

import math
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.localization import AutoLocalizer, MultiLevelHeatmap
from bifocal.localization.attention import attend, sentence_heatmap
from bifocal.losses import GroundingLoss
from bifocal.metrics import score_ranks
from bifocal.models import GroundingModel, build_model, grounding
from bifocal.models.batch import Batch, ImageCaptionPairs
from bifocal.text import TextBatch

LEVELS, CELLS, DIM = 2, 4, 6
CONFIGURATION: dict[str, Any] = {
    "model": {
        "name": "GroundingModel",
        "dim": DIM,
        "image_encoder": {"name": "MultiLevelEncoder", "levels": LEVELS},
        "text_encoder": "ElmoMixtureEncoder",
        "word_sharpness": 5.0,
    },
    "feature_dim": 5,
    "text_dim": 8,
    "text_format": "contextual",
}


def new_model(**changes: object) -> GroundingModel:
    torch.manual_seed(1)
    model = build_model(**CONFIGURATION | {"model": CONFIGURATION["model"] | changes})
    assert isinstance(model, GroundingModel)
    return model.double().eval()


def new_batch(images: int, captions_each: int, pad: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(images)
    captions = images * captions_each
    lengths = torch.randint(1, 6, (captions,), generator=generator)
    values = torch.randn(captions, 3, 5, 8, generator=generator)
    return Batch(
        image_ids=[str(image) for image in range(images)],
        regions=RegionBatch(
            torch.randn(images, LEVELS * CELLS, 5, generator=generator),
            torch.ones(images, LEVELS * CELLS, dtype=torch.bool),
            torch.zeros(images, LEVELS * CELLS, 4),
        ),
        text=TextBatch(torch.nn.functional.pad(values, (0, 0, 0, pad)), lengths),
        matches=torch.eye(images, dtype=torch.bool).repeat_interleave(captions_each, dim=1),
    )


def pertinences(texts: Tensor, levels: Tensor, unit: bool) -> list[float]:
    """Return the maximum over l of R_{t,l} for each text: eq. (1)-(4), (6)."""
    best = []
    for text in texts:
        by_level = []
        for cells in levels:
            attended = sum((max(0.0, float(text @ cell)) * cell for cell in cells), torch.zeros_like(text))
            # Without attention, the attended feature and its pertinence are 0.
            by_level.append(float(attended @ text) / ((float(attended.norm()) or 1.0) if unit else 1.0))
        best.append(max(by_level))
    return best


def posterior_loss(r: list[list[float]], matches: list[list[bool]], gamma: float) -> float:
    """Eq. (7)-(9) for r[image][sentence], averaged over the matching pairs; other matches are not negatives."""
    e = [[math.exp(gamma * value) for value in row] for row in r]
    total, pairs = 0.0, 0
    for i, row in enumerate(e):
        for s, positive in enumerate(row):
            if matches[i][s]:
                pairs += 1
                sentences = positive + sum(row[k] for k in range(len(row)) if not matches[i][k])
                images = positive + sum(e[k][s] for k in range(len(e)) if not matches[k][s])
                total -= math.log(positive / sentences) + math.log(positive / images)
    return total / pairs


@pytest.mark.parametrize(("images", "captions_each"), [(2, 1), (3, 3), (5, 2)])
def test_grounding_model_and_loss_equal_equations_1_to_10(images: int, captions_each: int) -> None:
    model, batch = new_model(), new_batch(images, captions_each)
    with torch.no_grad():
        scores = model(batch)
        cells, (sentences, words) = model.embed_images(batch.regions), model.embed_captions(batch.text)
    expected: dict[str, list[list[float]]] = {"word_scores": [], "sentence_scores": []}
    for image in cells:
        expected["sentence_scores"].append(pertinences(sentences, image, unit=False))
        row = []
        for caption, length in zip(words, batch.text.lengths.tolist(), strict=True):
            r = pertinences(caption[:length], image, unit=True)
            row.append(math.log(sum(math.exp(5 * value) for value in r) ** (1 / 5)))
        expected["word_scores"].append(row)
    for name, values in expected.items():
        torch.testing.assert_close(getattr(scores, name), torch.tensor(values, dtype=torch.float64))
    torch.testing.assert_close(scores.cross, scores.word_scores + scores.sentence_scores)
    matches = batch.matches.tolist()
    loss = sum(posterior_loss(values, matches, 10.0) for values in expected.values())
    assert GroundingLoss(sharpness=10.0)(scores, batch.matches).item() == pytest.approx(loss)


def test_scores_are_independent_of_padding() -> None:
    model = new_model()
    torch.testing.assert_close(model(new_batch(3, 2)).cross, model(new_batch(3, 2, pad=4)).cross)


def test_scores_are_independent_of_memory() -> None:
    batch = new_batch(3, 2)
    torch.testing.assert_close(new_model()(batch).cross, new_model(memory=0)(batch).cross)


@pytest.mark.parametrize("ablation", [{"softmax": True}, {"word_level": 0}, {"sentence_level": 1}])
def test_ablation_changes_scores(ablation: dict[str, object]) -> None:
    batch = new_batch(4, 2)
    plain, other = new_model()(batch), new_model(**ablation)(batch)
    assert not torch.allclose(plain.cross, other.cross)


ABLATIONS = [{"softmax": True}, {"word_level": 0, "sentence_level": 0}, {"unit_sentence": True}]


@pytest.mark.parametrize("ablation", [{}, *ABLATIONS])
def test_heatmaps_and_scores_have_the_same_attention(ablation: dict[str, Any]) -> None:
    """Table 3 of the paper reports pointing, so an ablation of the scores must change the heatmaps too."""
    model, batch = new_model(**ablation), new_batch(3, 1)
    with torch.no_grad():
        cells, (sentences, _) = model.embed_images(batch.regions), model.embed_captions(batch.text)
        expected = model(batch).sentence_scores
    options = model.attention
    for image, row in zip(cells, expected, strict=True):
        attention = attend(
            sentences, image, unit=options.unit_sentence, softmax=options.softmax, level=options.sentence_level
        )
        torch.testing.assert_close(attention.pertinence, row)
    localizer = AutoLocalizer().for_model(model)
    assert localizer is not None
    with torch.no_grad():
        heatmaps = localizer(model.image_encoder, batch.regions, sentences).scores
    for heatmap, sentence, image in zip(heatmaps, sentences, cells, strict=True):
        torch.testing.assert_close(heatmap, sentence_heatmap(sentence, image, options))


@pytest.mark.parametrize("ablation", ABLATIONS[:2])
def test_ablation_changes_the_heatmaps_of_phrases(ablation: dict[str, Any]) -> None:
    batch, maps = new_batch(4, 1), []
    for model in (new_model(), new_model(**ablation)):
        localizer = MultiLevelHeatmap().for_model(model)
        with torch.no_grad():
            sentences, words = model.embed_captions(batch.text)
            vectors = localizer.encode(model.image_encoder, batch.regions)
            phrases = [row[:length] for row, length in zip(words, batch.text.lengths.tolist(), strict=True)]
            maps.append(localizer.score(vectors, sentences, phrases).scores)
    assert not torch.allclose(*maps)


def test_retrieval_ranks_are_those_of_all_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grounding, "IMAGES_PER_BLOCK", 2)
    monkeypatch.setattr(grounding, "BATCH", 4)
    model, batch = new_model(), new_batch(5, 2)

    class Pairs:
        image_of_caption = torch.arange(5).repeat_interleave(2)

        def image_batches(self, size: int) -> Iterator[RegionBatch]:
            return (RegionBatch(*parts) for parts in zip(*(part.split(size) for part in batch.regions), strict=True))

        def caption_batches(self, size: int) -> Iterator[TextBatch]:
            # A batch is padded to its own longest caption.
            for values, lengths in zip(*(part.split(size) for part in batch.text), strict=True):
                yield TextBatch(values[:, :, : int(lengths.max())], lengths)

    with torch.no_grad():
        scores = model(batch).cross
    ranks = model.retrieval_ranks(cast(ImageCaptionPairs, Pairs()))
    expected = score_ranks(lambda row, column: scores[row][:, column], Pairs.image_of_caption, images=5)
    for ours, theirs in zip(ranks, expected, strict=True):
        assert [ours.recall(k) for k in (1, 2, 5)] == [theirs.recall(k) for k in (1, 2, 5)]
    assert 0 < ranks[0].recall(2) < 1


def test_grounding_model_rejects_text_encoder_without_words() -> None:
    with pytest.raises(TypeError, match="GRUEncoder gives only sentences"):
        new_model(text_encoder="GRUEncoder")


@pytest.mark.parametrize("text_encoder", ["ElmoMixtureEncoder", "ElmoBiLSTMEncoder", "TokenMixtureEncoder"])
@pytest.mark.parametrize("seed", range(8))
def test_new_model_has_different_cells_and_positive_cosines(seed: int, text_encoder: str) -> None:
    """Levels with equal cells get no words, and a ReLU of negative cosines has no gradient."""
    torch.manual_seed(seed)
    sizes = {
        "model": CONFIGURATION["model"] | {"dim": 256, "text_encoder": {"name": text_encoder, "layers": 3}},
        "feature_dim": 64,
        "text_dim": 64,
    }
    model = build_model(**CONFIGURATION | sizes)
    # As in real features and word vectors, all vectors share a large mean.
    cells = 7 * torch.nn.functional.normalize(torch.randn(64), dim=0) + torch.randn(5, LEVELS * CELLS, 64)
    values = 7 * torch.nn.functional.normalize(torch.randn(64), dim=0) + torch.randn(9, 3, 5, 64)
    images = model.embed_images(RegionBatch(cells, torch.ones(5, LEVELS * CELLS, dtype=torch.bool), torch.zeros(0)))
    assert torch.einsum("nlrd,nlsd->nlrs", images, images).mean() < 0.9
    sentences, words = model.embed_captions(TextBatch(values, torch.full((9,), 5)))
    for texts in (sentences, words.flatten(0, 1)):
        assert (torch.einsum("td,nlrd->tnlr", texts, images) > 0).double().mean() > 0.99
