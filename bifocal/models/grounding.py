"""Grounding model: the words and the sentence of a caption, each against the cells of several levels."""

from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from bifocal.batch import Batch, ImageCaptionPairs, to_device
from bifocal.embedding import BATCH
from bifocal.features import RegionBatch
from bifocal.metrics import Ranks, score_ranks
from bifocal.models.pertinence import best_pertinence, sentence_from_words
from bifocal.scores import Scores
from bifocal.text import Text


class CellEncoder(Protocol):
    """features (B, R, D), mask (B, R) bool -> (B, L, N, d), of unit norm; zero where there is no cell."""

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor: ...


class WordEncoder(Protocol):
    """values (B, ...), lengths (B,) -> sentences (B, d) and, from ``words``, (B, T, d), of unit norm; zero behind."""

    def __call__(self, values: Tensor, lengths: Tensor) -> Tensor: ...

    def words(self, values: Tensor, lengths: Tensor) -> Tensor: ...


class GroundingModel(nn.Module):
    """Attention of each word, and of the sentence, to the cells of the level that fits it best.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, eq. (1)-(6).
    The paper ranks no captions; here ``cross`` is R_w + R_s, what eq. (10) trains to be high.

    Args:
        image_encoder: to the cells of L levels, such as ``MultiLevelEncoder``.
        text_encoder: to sentences and words of the same dimension, such as ``ElmoMixtureEncoder``.
        words: the vectors that token ids stand for; None if the text comes as vectors.
        feature_dim: D, channels of an image's features.
        text_dim: K, of a word's vector.
        text_kind: see ``bifocal.text.TextStore``.
        word_sharpness: gamma_1 of eq. (5).
        softmax: attention through a softmax over the cells, an ablation.
        word_level, sentence_level: the only level for words, and for sentences, an ablation; None for the best.
        unit_sentence: divide the sentence's attended feature by its norm too, which eq. (6b) does not: R_s then is a
            cosine, and no sum over the cells.
        memory: MiB that scoring takes at once, see ``bifocal.models.pertinence``.

    Shape:
        batch of N images and M captions -> Scores with cross, words, sentences (N, M).

    Raises:
        TypeError: the text encoder gives no words.
    """

    def __init__(
        self,
        image_encoder: nn.Module,
        text_encoder: nn.Module,
        words: nn.Embedding | None = None,
        *,
        feature_dim: int,
        text_dim: int,
        text_kind: str,
        word_sharpness: float = 5.0,
        softmax: bool = False,
        word_level: int | None = None,
        sentence_level: int | None = None,
        unit_sentence: bool = False,
        memory: int = 512,
    ) -> None:
        super().__init__()
        if not hasattr(text_encoder, "words"):
            raise TypeError(
                f"{type(text_encoder).__name__} gives sentences alone, and GroundingModel needs their words too: "
                "use ElmoMixtureEncoder"
            )
        self.feature_dim, self.text_dim, self.text_kind = feature_dim, text_dim, text_kind
        self.image_encoder, self.text_encoder, self.words = image_encoder, text_encoder, words
        self.word_sharpness, self.softmax, self.memory = word_sharpness, softmax, memory
        self.word_level, self.sentence_level, self.unit_sentence = word_level, sentence_level, unit_sentence

    def forward(self, batch: Batch) -> Scores:
        return self.score(self.embed_images(batch.regions), self.embed_captions(batch.text))

    def score(self, images: Tensor, captions: tuple[Tensor, Tensor]) -> Scores:
        """Scores of cells (N, L, R, d) and of sentences (M, d) with their words (M, T, d)."""
        sentences, words = captions
        present = words.any(dim=2)
        pertinence = partial(best_pertinence, cells=images, softmax=self.softmax, memory=self.memory)
        of_words = pertinence(words[present], unit=True, level=self.word_level)
        by_words = sentence_from_words(of_words, present, self.word_sharpness)
        by_sentence = pertinence(sentences, unit=self.unit_sentence, level=self.sentence_level)
        return Scores(by_words + by_sentence, words=by_words, sentences=by_sentence)

    def embed_images(self, regions: RegionBatch) -> Tensor:
        """Cells (N, L, R, d) of unit norm; zero where there is none."""
        encode: CellEncoder = self.image_encoder
        return encode(regions.features.to(self.dtype), regions.mask)

    def embed_captions(self, text: Text) -> tuple[Tensor, Tensor]:
        """Sentences (M, d) and words (M, T, d) of unit norm; zero where a caption has ended."""
        values = text.values.to(self.dtype) if self.words is None else self.words(text.values)
        encoder: WordEncoder = self.text_encoder  # type: ignore[assignment]
        return encoder(values, text.lengths), encoder.words(values, text.lengths)

    def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
        """Ranks of caption retrieval and of image retrieval; the cells of all images stand in memory, float32."""
        self.eval()
        with torch.inference_mode():
            cells = torch.cat([self.embed_images(to_device(r, self.device)).cpu() for r in pairs.image_batches(BATCH)])
            sentences, words = self._collection(pairs)

            def scores(rows: Tensor, columns: Tensor) -> Tensor:
                captions = sentences[columns].to(self.device), words[columns].to(self.device)
                parts = rows.split(32)
                return torch.cat([self.score(cells[part].to(self.device), captions).cross.cpu() for part in parts])

            return score_ranks(scores, pairs.image_of_caption, images=len(cells))

    def _collection(self, pairs: ImageCaptionPairs) -> tuple[Tensor, Tensor]:
        batches = [self.embed_captions(to_device(text, self.device)) for text in pairs.caption_batches(BATCH)]
        longest = max(words.shape[1] for _, words in batches)
        words = torch.cat([pad(words, (0, 0, 0, longest - words.shape[1])) for _, words in batches])
        return torch.cat([sentences for sentences, _ in batches]).cpu(), words.cpu()

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return next(self.image_encoder.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.image_encoder.parameters()).device
