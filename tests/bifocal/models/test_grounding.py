"""Pertinence of texts to images: loops over eq. (1)-(6) as reference, and peak memory."""

import math
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from bifocal.features import RegionBatch
from bifocal.localization import AutoLocalizer, MultiLevelHeatmap
from bifocal.localization.attention import attend, sentence_heatmap
from bifocal.losses import GroundingLoss
from bifocal.metrics import score_ranks
from bifocal.models import GroundingModel, build_model, grounding
from bifocal.models.batch import Batch, ImageCaptionPairs
from bifocal.models.grounding import best_pertinence, pertinence, sentence_from_words
from bifocal.text import TextBatch

Vector = list[float]


def dot(first: Vector, second: Vector) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def equations(text: Vector, levels: list[list[Vector]], unit: bool, softmax: bool) -> list[float]:
    """R_{t,l} of eq. (1)-(3), or R_{s,l} of (6a)-(6c) if not ``unit``, from the attended
    feature."""
    pertinences = []
    for cells in levels:
        present = [cell for cell in cells if any(cell)]
        cosines = [dot(text, cell) for cell in present]
        if softmax:
            total = sum(math.exp(s) for s in cosines)
            heat = [math.exp(s) / total for s in cosines]
        else:
            heat = [max(0.0, s) for s in cosines]
        attended = [
            sum(h * cell[k] for h, cell in zip(heat, present, strict=True))
            for k in range(len(text))
        ]
        norm = math.sqrt(dot(attended, attended)) if unit else 1.0
        pertinences.append(dot(attended, text) / norm if norm else 0.0)
    return pertinences


def example(
    seed: int, images: int, texts: int, levels: int = 3, cells: int = 5, dim: int = 4
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(images, levels, cells, dim, generator=generator, dtype=torch.float64)
    sentences = torch.randn(texts, dim, generator=generator, dtype=torch.float64)
    vectors = normalize(vectors, dim=3)
    vectors[0, :, -2:] = 0  # this image has fewer cells
    return normalize(sentences, dim=1), vectors


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("size", [2, 5, 17])
def test_pertinence_equals_equations(size: int, unit: bool, softmax: bool) -> None:
    texts, cells = example(size, size, size + 1)
    actual = pertinence(texts, cells, unit=unit, softmax=softmax)
    expected = [[equations(t, v, unit, softmax) for t in texts.tolist()] for v in cells.tolist()]
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))


def test_pertinence_without_attention_is_0_with_finite_gradient() -> None:
    cells = normalize(torch.tensor([[[[1.0, 0.0], [1.0, 0.1]]]]), dim=3).requires_grad_()
    actual = pertinence(torch.tensor([[-1.0, 0.0]]), cells, unit=True, softmax=False)
    actual.sum().backward()
    assert actual.item() == 0
    assert cells.grad is not None
    assert torch.isfinite(cells.grad).all()


@pytest.mark.parametrize("level", [None, 0, 2])
def test_best_pertinence_uses_best_or_given_level(level: int | None) -> None:
    texts, cells = example(1, 3, 4)
    by_level = pertinence(texts, cells, unit=True, softmax=False)
    actual = best_pertinence(texts, cells, unit=True, softmax=False, level=level, memory=64)
    torch.testing.assert_close(
        actual, by_level.amax(dim=2) if level is None else by_level[:, :, level]
    )


def test_sentence_from_words_equals_equation_5() -> None:
    """Three captions of two, three and one words."""
    present = torch.tensor([[True, True, False], [True, True, True], [True, False, False]])
    pertinences = torch.rand(4, 6, dtype=torch.float64)
    actual = sentence_from_words(pertinences, present, 5.0).tolist()
    for image, row in enumerate(pertinences.tolist()):
        for caption, words in enumerate((row[0:2], row[2:5], row[5:6])):
            expected = math.log(sum(math.exp(5.0 * r) for r in words) ** (1 / 5.0))
            assert actual[image][caption] == pytest.approx(expected)


def test_sentence_from_words_passes_gradcheck() -> None:
    texts, cells = example(5, 2, 3)
    present = torch.tensor([[True, True], [True, False]])

    def score(t: Tensor, v: Tensor) -> Tensor:
        pertinences = best_pertinence(t, v, unit=True, softmax=False, level=None, memory=64)
        return sentence_from_words(pertinences, present, 5.0)

    assert torch.autograd.gradcheck(score, (texts.requires_grad_(), cells.requires_grad_()))


class LiveBytes(TorchDispatchMode):
    """Peak memory, in bytes, of the live results of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self._add(part.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.current += size
            self.peak = max(self.peak, self.current)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.current -= size


@pytest.mark.parametrize("backward", [False, True])
def test_blocks_bound_memory_and_keep_values_and_gradients(backward: bool) -> None:
    torch.manual_seed(0)
    texts = normalize(torch.randn(300, 8), dim=1).requires_grad_(backward)
    cells = normalize(torch.randn(20, 2, 64, 8), dim=3).requires_grad_(backward)
    results, peaks = {}, {}
    for memory in (2, 1000):
        with torch.set_grad_enabled(backward), LiveBytes() as live:
            value = best_pertinence(
                texts, cells, unit=True, softmax=False, level=None, memory=memory
            )
            gradients = (
                torch.autograd.grad(value.square().sum(), (texts, cells)) if backward else ()
            )
        results[memory], peaks[memory] = (value.detach(), *gradients), live.peak
    for blocked, whole in zip(results[2], results[1000], strict=True):
        torch.testing.assert_close(blocked, whole)
    others = 4 * (20 * 2 * 64 * 64 + 4 * 20 * 300 + 3 * (texts.numel() + cells.numel()))
    assert peaks[2] < (2 << 20) + others
    assert peaks[1000] > 3 * peaks[2]


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
            attended = sum(
                (max(0.0, float(text @ cell)) * cell for cell in cells), torch.zeros_like(text)
            )
            # Without attention, the attended feature and its pertinence are 0.
            by_level.append(
                float(attended @ text) / ((float(attended.norm()) or 1.0) if unit else 1.0)
            )
        best.append(max(by_level))
    return best


def posterior_loss(r: list[list[float]], matches: list[list[bool]], gamma: float) -> float:
    """Eq. (7)-(9) for r[image][sentence], averaged over the matching pairs; other matches are not
    negatives."""
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
        cells, (sentences, words) = (
            model.embed_images(batch.regions),
            model.embed_captions(batch.text),
        )
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
    """Table 3 of the paper reports pointing, so an ablation of the scores must change the heatmaps
    too."""
    model, batch = new_model(**ablation), new_batch(3, 1)
    with torch.no_grad():
        cells, (sentences, _) = model.embed_images(batch.regions), model.embed_captions(batch.text)
        expected = model(batch).sentence_scores
    options = model.attention
    for image, row in zip(cells, expected, strict=True):
        attention = attend(
            sentences,
            image,
            unit=options.unit_sentence,
            softmax=options.softmax,
            level=options.sentence_level,
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
            phrases = [
                row[:length] for row, length in zip(words, batch.text.lengths.tolist(), strict=True)
            ]
            maps.append(localizer.score(vectors, sentences, phrases).scores)
    assert not torch.allclose(*maps)


def test_retrieval_ranks_are_those_of_all_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grounding, "IMAGES_PER_BLOCK", 2)
    monkeypatch.setattr(grounding, "BATCH", 4)
    model, batch = new_model(), new_batch(5, 2)

    class Pairs:
        image_of_caption = torch.arange(5).repeat_interleave(2)

        def image_batches(self, size: int) -> Iterator[RegionBatch]:
            return (
                RegionBatch(*parts)
                for parts in zip(*(part.split(size) for part in batch.regions), strict=True)
            )

        def caption_batches(self, size: int) -> Iterator[TextBatch]:
            # A batch is padded to its own longest caption.
            for values, lengths in zip(*(part.split(size) for part in batch.text), strict=True):
                yield TextBatch(values[:, :, : int(lengths.max())], lengths)

    with torch.no_grad():
        scores = model(batch).cross
    ranks = model.retrieval_ranks(cast(ImageCaptionPairs, Pairs()))
    expected = score_ranks(
        lambda row, column: scores[row][:, column], Pairs.image_of_caption, images=5
    )
    for ours, theirs in zip(ranks, expected, strict=True):
        assert [ours.recall(k) for k in (1, 2, 5)] == [theirs.recall(k) for k in (1, 2, 5)]
    assert 0 < ranks[0].recall(2) < 1


def test_grounding_model_rejects_text_encoder_without_words() -> None:
    with pytest.raises(TypeError, match="GRUEncoder gives only sentences"):
        new_model(text_encoder="GRUEncoder")


@pytest.mark.parametrize(
    "text_encoder", ["ElmoMixtureEncoder", "ElmoBiLSTMEncoder", "TokenMixtureEncoder"]
)
@pytest.mark.parametrize("seed", range(8))
def test_new_model_has_different_cells_and_positive_cosines(seed: int, text_encoder: str) -> None:
    """Levels with equal cells get no words, and a ReLU of negative cosines has no gradient."""
    torch.manual_seed(seed)
    sizes = {
        "model": CONFIGURATION["model"]
        | {"dim": 256, "text_encoder": {"name": text_encoder, "layers": 3}},
        "feature_dim": 64,
        "text_dim": 64,
    }
    model = build_model(**CONFIGURATION | sizes)
    # As in real features and word vectors, all vectors share a large mean.
    cells = 7 * torch.nn.functional.normalize(torch.randn(64), dim=0) + torch.randn(
        5, LEVELS * CELLS, 64
    )
    values = 7 * torch.nn.functional.normalize(torch.randn(64), dim=0) + torch.randn(9, 3, 5, 64)
    images = model.embed_images(
        RegionBatch(cells, torch.ones(5, LEVELS * CELLS, dtype=torch.bool), torch.zeros(0))
    )
    assert torch.einsum("nlrd,nlsd->nlrs", images, images).mean() < 0.9
    sentences, words = model.embed_captions(TextBatch(values, torch.full((9,), 5)))
    for texts in (sentences, words.flatten(0, 1)):
        assert (torch.einsum("td,nlrd->tnlr", texts, images) > 0).double().mean() > 0.99
