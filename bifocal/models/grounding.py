"""Grounding model: a caption's words and sentence attend to cells at several levels of an image."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import ClassVar, Protocol, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bifocal.features import RegionBatch
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.attention import AttentionOptions
from bifocal.metrics import Ranks, score_ranks
from bifocal.models.base import Model
from bifocal.models.batch import BATCH, Batch, ImageCaptionPairs, to_device
from bifocal.onnx.text.captions import FormatName
from bifocal.scores import Scores
from bifocal.text import TextBatch
from bifocal.text_encoders.base import TextEncoder

ARRAYS = 8
"""Numbers in memory per (text, cell) pair of a block, including the backward pass."""
IMAGES_PER_BLOCK = 32
"""Images whose cells are in memory at once: 170 MB with four levels of 324 cells and d = 1024."""


def pertinence(texts: Tensor, cells: Tensor, *, unit: bool, softmax: bool) -> Tensor:
    """Cosine of each text (K, d) with its attended feature, for each image and level of cells (N,
    L, R, d).

    Akbari et al., CVPR 2019, eq. (1)-(3) for words, (6a)-(6c) for sentences. The attended feature a
    = sum of H_n v_n is not computed, to save memory: <a, s> is the sum of H_n <v_n, s>, and |a|^2
    is H G H' with the cells' Gram matrix G. ``unit`` divides a by its norm; ``softmax`` replaces
    eq. (1) by a softmax over the cells of a level.
    """
    similarity = texts @ cells.transpose(2, 3)  # (N, L, K, R)
    if softmax:
        absent = ~cells.any(dim=3, keepdim=True).transpose(2, 3)
        heatmap = similarity.masked_fill(absent, torch.finfo(similarity.dtype).min).softmax(dim=3)
    else:
        heatmap = similarity.relu()
    product = (heatmap * similarity).sum(dim=3)
    if unit:
        squared = ((heatmap @ (cells @ cells.transpose(2, 3))) * heatmap).sum(dim=3)
        # Without attention, a = 0 and the pertinence is 0; the clamp keeps its gradient finite.
        product = product / squared.clamp_min(torch.finfo(squared.dtype).tiny ** 0.5).sqrt()
    return product.transpose(1, 2)


def best_pertinence(
    texts: Tensor, cells: Tensor, *, unit: bool, softmax: bool, level: int | None, memory: int
) -> Tensor:
    """Pertinence (N, K) at the best level, eq. (4) and (6d), or at one ``level``, in blocks of
    ``memory`` MiB.

    With more than one block, the backward pass computes the activations again.
    """
    if level is not None:
        cells = cells[:, level : level + 1]

    def block(block_texts: Tensor, images: Tensor) -> Tensor:
        return pertinence(block_texts, images, unit=unit, softmax=softmax).amax(dim=2)

    per_pair = ARRAYS * cells.shape[1] * cells.shape[2] * cells.element_size()
    rows, columns = _sizes(len(cells), len(texts), max(1, (memory << 20) // max(1, per_pair)))
    if rows >= len(cells) and columns >= len(texts):
        return block(texts, cells)
    recompute = torch.is_grad_enabled() and (texts.requires_grad or cells.requires_grad)

    def over_texts(images: Tensor) -> Iterator[Tensor]:
        for part in texts.split(columns):
            yield (
                checkpoint(block, part, images, use_reentrant=False)
                if recompute
                else block(part, images)
            )

    return torch.cat([torch.cat(list(over_texts(images)), dim=1) for images in cells.split(rows)])


def _sizes(images: int, texts: int, pairs: int) -> tuple[int, int]:
    """Return the numbers of images and texts per block of at most ``pairs`` pairs; images are split
    first."""
    columns = max(1, min(texts, pairs))
    return max(1, min(images, pairs // columns)), columns


def sentence_from_words(pertinences: Tensor, present: Tensor, sharpness: float) -> Tensor:
    """Return R_w (N, M) of eq. (5): log((sum over the words of exp(gamma_1 R_t)) ^ (1 / gamma_1)).

    ``pertinences`` (N, K) are of the K words that ``present`` (M, T) marks; ``sharpness`` is
    gamma_1.
    """
    padded = pertinences.new_full((len(pertinences), *present.shape), -torch.inf)
    padded[:, present] = pertinences
    return (sharpness * padded).logsumexp(dim=2) / sharpness


class WordEncoder(Protocol):
    """Text encoder that also encodes words: values (B, ...), lengths (B,) -> (B, T, d)."""

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor: ...


class GroundingModel(Model):
    """Attention of each word, and of the sentence, to the cells at the level with the highest
    pertinence.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR
    2019, eq. (1)-(6). The paper does not rank captions; here ``cross`` is R_w + R_s, the two scores
    that eq. (10) trains.

    Args:
        image_encoder: maps features to the cells of L levels, such as ``MultiLevelEncoder``.
        text_encoder: embeds sentences and, with ``encode_words``, words, such as
            ``ElmoMixtureEncoder``.
        dim, text_format, vocabulary_size: see ``bifocal.models.base.Model``.
        word_sharpness: gamma_1 of eq. (5).
        softmax: use a softmax over the cells as attention, an ablation.
        word_level, sentence_level: level for words, and for sentences, an ablation; None for the
            best.
        unit_sentence: divide the sentence's attended feature by its norm too, which eq. (6b) does
            not do: R_s is then a cosine instead of a sum over the cells.
        memory: MiB that scoring allocates at once, see ``bifocal.models.grounding``.

    Shape:
        batch of N images and M captions -> Scores with cross, word_scores, sentence_scores (N, M).

    Raises:
        TypeError: the text encoder has no ``encode_words``.

    Example:
        >>> from bifocal.image_encoders import MultiLevelEncoder
        >>> from bifocal.text_encoders import ElmoMixtureEncoder
        >>> model = GroundingModel(
        ...     MultiLevelEncoder(6, 8), ElmoMixtureEncoder(10, 8), text_format="contextual"
        ... )
        >>> sentences, words = model.embed_captions(
        ...     TextBatch(torch.rand(2, 3, 5, 10), torch.tensor([5, 2]))
        ... )
        >>> sentences.shape, words.shape
        (torch.Size([2, 8]), torch.Size([2, 5, 8]))
    """

    single_vector: ClassVar[bool] = False
    scores: ClassVar[Collection[str]] = ("word_scores", "sentence_scores")

    def __init__(
        self,
        image_encoder: ImageEncoder,
        text_encoder: TextEncoder,
        *,
        dim: int | None = None,
        text_format: FormatName,
        vocabulary_size: int | None = None,
        word_sharpness: float = 5.0,
        softmax: bool = False,
        word_level: int | None = None,
        sentence_level: int | None = None,
        unit_sentence: bool = False,
        memory: int = 512,
    ) -> None:
        if not hasattr(text_encoder, "encode_words"):
            raise TypeError(
                f"{type(text_encoder).__name__} gives only sentences, and GroundingModel needs "
                "their words too: use ElmoMixtureEncoder"
            )
        super().__init__(
            image_encoder,
            text_encoder,
            dim=dim,
            text_format=text_format,
            vocabulary_size=vocabulary_size,
        )
        self.word_sharpness, self.memory = word_sharpness, memory
        self.attention = AttentionOptions(softmax, word_level, sentence_level, unit_sentence)

    def forward(self, batch: Batch) -> Scores:
        return self.score(self.embed_images(batch.regions), self.embed_captions(batch.text))

    def score(self, images: Tensor, captions: tuple[Tensor, Tensor]) -> Scores:
        """Return the scores of cells (N, L, R, d) and of sentences (M, d) with their words (M, T,
        d)."""
        (sentences, words), attention = captions, self.attention
        present = words.any(dim=2)
        pertinence = partial(
            best_pertinence, cells=images, softmax=attention.softmax, memory=self.memory
        )
        by_word = pertinence(words[present], unit=True, level=attention.word_level)
        word_scores = sentence_from_words(by_word, present, self.word_sharpness)
        sentence_scores = pertinence(
            sentences, unit=attention.unit_sentence, level=attention.sentence_level
        )
        return Scores(
            word_scores + sentence_scores, word_scores=word_scores, sentence_scores=sentence_scores
        )

    def embed_images(self, regions: RegionBatch) -> Tensor:
        """Return the cells (N, L, R, d) of N images, of unit norm; zero for padding."""
        cells: Tensor = self.image_encoder(regions.features.to(self.dtype), regions.mask)
        return cells

    def embed_captions(self, text: TextBatch) -> tuple[Tensor, Tensor]:
        """Return sentences (M, d) and words (M, T, d), of unit norm; zero after the end of a
        caption."""
        vectors, encoder = self.text_vectors(text), cast(WordEncoder, self.text_encoder)
        return self.text_encoder(vectors, text.lengths), encoder.encode_words(vectors, text.lengths)

    def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
        """Return the ranks of caption retrieval and of image retrieval.

        Each image is encoded once, and its cells are dropped after its scores. The word vectors of
        all captions and the scores of all pairs, float32, stay in memory: 3 GB for 5,000 images
        with 25,000 captions and d = 1024.
        """
        self.eval()
        with torch.inference_mode():
            texts = pairs.caption_batches(BATCH)
            captions = [
                tuple(part.cpu() for part in self.embed_captions(to_device(t, self.device)))
                for t in texts
            ]
            rows = [
                self._score_row(regions, captions)
                for regions in pairs.image_batches(IMAGES_PER_BLOCK)
            ]
        scores = torch.cat(rows)
        return score_ranks(
            lambda images, columns: scores[images][:, columns],
            pairs.image_of_caption,
            images=len(scores),
        )

    def _score_row(self, regions: RegionBatch, captions: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Return the scores (n, M) of a block of images with all captions, on the CPU."""
        cells = self.embed_images(to_device(regions, self.device))
        blocks = (
            (sentences.to(self.device), words.to(self.device)) for sentences, words in captions
        )
        return torch.cat([self.score(cells, block).cross.cpu() for block in blocks], dim=1)
