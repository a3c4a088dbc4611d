"""Mining of hard-negative boxes for phrase localization."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bifocal.models.batch import to_device
from bifocal.models.embedding import BATCH, DualEncoder
from bifocal.training.pairs.phrase_boxes import PhraseBoxPairs, draw_per_group

IMAGES = 16
"""Images whose boxes are embedded at once."""
MAX_WAITING = 4_000_000
"""Hard boxes, of all phrases, that wait for the next draw: bounds the memory."""


class ImageScores(NamedTuple):
    """Scores (p, b) of one image's proposals for its phrases, with phrase rows and box numbers."""

    phrases: Tensor
    boxes: Tensor
    scores: Tensor


@torch.inference_mode()
def hard_negative_boxes(
    model: DualEncoder, pairs: PhraseBoxPairs, positives: Tensor, generator: Generator, max_negatives: int = 50
) -> Tensor:
    """Return proposals that the model scores above one of the ground-truth boxes of a phrase.

    Wang, Li, Lazebnik, CVPR 2016, section 3.3: proposals of the phrase's images that overlap none of its ground-truth
    boxes. ``positives`` (n, 2) are rows of phrases and numbers of their ground-truth boxes. Return (k, 2) int64, sorted
    by phrase, at most ``max_negatives`` of each, drawn at random.
    """
    vectors = embed_phrases(model, pairs)
    threshold = torch.full((len(pairs.phrases),), torch.inf)
    for rows in positives[positives[:, 1].argsort(stable=True)].split(BATCH):
        boxes = model.embed_images(to_device(pairs.boxes(rows[:, 1]), model.device)).float()
        scores = (boxes * vectors[rows[:, 0].to(vectors.device)]).sum(dim=1).cpu()
        threshold.scatter_reduce_(0, rows[:, 0], scores, "amin")
    found, keys = [torch.empty(0, 2, dtype=torch.int64)], [torch.empty(0)]
    for image in image_scores(model, pairs, vectors):
        hard = (image.scores > threshold[image.phrases].unsqueeze(1)) & ~pairs.overlaps(
            image.phrases.unsqueeze(1), image.boxes
        )
        phrase, box = hard.nonzero(as_tuple=True)
        found.append(torch.stack([image.phrases[phrase], image.boxes[box]], dim=1))
        keys.append(torch.rand(len(phrase), generator=generator))
        if sum(map(len, keys)) > MAX_WAITING:
            found, keys = _draw(found, keys, max_negatives)
    return _draw(found, keys, max_negatives)[0][0]


def embed_phrases(model: DualEncoder, pairs: PhraseBoxPairs) -> Tensor:
    """Return the embeddings (P, d) of all phrases, float32, on the model's device."""
    model.eval()
    with torch.inference_mode():
        blocks = (to_device(pairs.texts(rows), model.device) for rows in torch.arange(len(pairs.phrases)).split(BATCH))
        return torch.cat([model.embed_captions(block).float() for block in blocks])


def image_scores(model: DualEncoder, pairs: PhraseBoxPairs, vectors: Tensor) -> Iterator[ImageScores]:
    """Yield the scores of each image with phrases, embedded as ``vectors``; few images are in memory at a time."""
    phrases_of_image = pairs.phrase_images[:, 0].split(pairs.phrase_images[:, 1].bincount().tolist())
    for block in torch.arange(len(pairs.image_ids)).split(IMAGES):
        boxes = [pairs.proposals(image) for image in block.tolist()]
        regions = to_device(pairs.boxes(torch.cat(boxes)), model.device)
        with torch.inference_mode():
            embeddings = model.embed_images(regions).float().split([len(rows) for rows in boxes])
        for image, rows, embedding in zip(block.tolist(), boxes, embeddings, strict=True):
            phrases = phrases_of_image[image]
            yield ImageScores(phrases, rows, (vectors[phrases.to(vectors.device)] @ embedding.T).cpu())


def _draw(found: list[Tensor], keys: list[Tensor], maximum: int) -> tuple[list[Tensor], list[Tensor]]:
    rows, key = torch.cat(found), torch.cat(keys)
    kept = draw_per_group(rows[:, 0], key, maximum)
    return [rows[kept]], [key[kept]]
