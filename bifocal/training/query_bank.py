"""The bank of training captions and images of a trained model."""

from typing import Any

import torch

from bifocal.hubness.bank import HubnessBank
from bifocal.models.embedding import BATCH, dual_encoder, embed_images, embed_texts, is_dual_encoder
from bifocal.training.inputs import TrainingInputs
from bifocal.training.precision import embedding_cast

BANK_SIZE = 4096
"""Captions, and images, of a bank: at d = 1024 the file has 16 MB."""


def training_bank(model: Any, inputs: TrainingInputs, correction: object, seed: int) -> HubnessBank | None:
    """Return at most 4,096 random captions and images of "train", if there are captions and single image vectors."""
    if correction is None or not is_dual_encoder(model):
        return None
    pairs, encoder = inputs.captions("train"), dual_encoder(model)
    if not len(pairs):
        return None
    generator = torch.Generator().manual_seed(seed)
    captions = torch.randperm(len(pairs), generator=generator)[:BANK_SIZE].sort().values
    images = torch.randperm(len(pairs.image_ids), generator=generator)[:BANK_SIZE].sort().values
    rows = torch.from_numpy(inputs.features.rows([pairs.image_ids[row] for row in images.tolist()]))
    with embedding_cast(model, inputs.precision):
        image_vectors = embed_images(encoder, (inputs.features.gather(some) for some in rows.split(BATCH)))
        caption_vectors = embed_texts(encoder, (pairs.caption_text(some) for some in captions.split(BATCH)))
    return HubnessBank.build(caption_vectors.numpy(), image_vectors.numpy(), correction)
