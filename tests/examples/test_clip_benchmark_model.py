"""A run in CLIP_benchmark."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bifocal.metrics import retrieval_ranks
from bifocal.search.trained_model import TrainedModel
from examples.clip_benchmark_model import load_clip_benchmark, load_for_command

SENTENCES = ["a red star", "ein Stern, blau und größer", "two rings"]


@pytest.fixture(scope="module")
def scenes(demo: TrainedModel) -> list[tuple[Image.Image, list[str]]]:
    """Twelve images of the demo with their captions."""
    collection = demo.collection
    return [
        (Image.open(str(collection.image(row))).convert("RGB"), collection.captions(row))
        for row in range(12)
    ]


def test_images_and_sentences_have_the_vectors_of_the_run(
    demo: TrainedModel, scenes: list[tuple[Image.Image, list[str]]]
) -> None:
    model, transform, tokenizer = load_clip_benchmark(demo.directory)
    tokens = tokenizer(SENTENCES)
    assert tokens.shape == (3, len(SENTENCES[1].encode()))
    np.testing.assert_allclose(model.encode_text(tokens), demo.encode_text(SENTENCES), atol=1e-5)
    images = [image for image, _ in scenes[:3]]
    pixels = torch.stack([transform(image) for image in images])
    np.testing.assert_allclose(model.encode_image(pixels), demo.encode_image(images), atol=1e-5)


class Scenes(torch.utils.data.Dataset[Any]):
    def __init__(self, scenes: list[tuple[Image.Image, list[str]]], transform: Any) -> None:
        self.scenes, self.transform = scenes, transform

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, list[str]]:
        image, captions = self.scenes[row]
        return self.transform(image), captions


def test_the_package_measures_the_recall_of_the_run(
    demo: TrainedModel, scenes: list[tuple[Image.Image, list[str]]]
) -> None:
    retrieval = pytest.importorskip("clip_benchmark.metrics.zeroshot_retrieval")
    utilities = pytest.importorskip("clip_benchmark.datasets.builder")
    models = pytest.importorskip("clip_benchmark.models")
    models.TYPE2FUNC["bifocal"] = load_for_command
    models.MODEL_TYPES.append("bifocal")
    model, transform, tokenizer = models.load_clip("bifocal", str(demo.directory), "", "", "cpu")
    loader = torch.utils.data.DataLoader(
        Scenes(scenes, transform), batch_size=5, collate_fn=utilities.image_captions_collate_fn
    )
    measured = retrieval.evaluate(model, loader, tokenizer, "cpu", amp=False, recall_k_list=[1, 5])
    captions = [caption for _, own in scenes for caption in own]
    image_of_caption = torch.tensor([row for row, (_, own) in enumerate(scenes) for _ in own])
    vectors = demo.encode_image([image for image, _ in scenes]), demo.encode_text(captions)
    by_image, by_caption = retrieval_ranks(*map(torch.from_numpy, vectors), image_of_caption)
    for k in (1, 5):
        assert measured[f"text_retrieval_recall@{k}"] == pytest.approx(by_image.recall(k))
        assert measured[f"image_retrieval_recall@{k}"] == pytest.approx(by_caption.recall(k))


def test_model_of_published_features_is_refused(demo: TrainedModel, tmp_path: Path) -> None:
    shutil.copytree(demo.directory / "artifacts" / "onnx", tmp_path / "artifacts" / "onnx")
    (tmp_path / "artifacts" / "onnx" / "preprocessing.json").unlink()
    with pytest.raises(ValueError, match="no exported graph computes features from images"):
        load_clip_benchmark(tmp_path)
