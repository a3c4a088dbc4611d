"""Encoders of class probabilities: the graphs equal the equation, from torch's logits and the
stored class vectors."""

import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load_file

from bifocal.backbones.classes import class_vectors
from bifocal.export.class_sentences import export_class_sentences
from bifocal.export.pointing import load_class_logits
from bifocal.localization.heads import ClassMixture
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.pointing import PointingHead
from bifocal.search.collection.image_vectors import ImageVectors
from tests.bifocal.pointing_heads import DEFINITIONS, NAMES, PADDED, describe, write_head
from tests.bifocal.tiny_transformer import write_tiny_transformer

SIZE = 96


@pytest.fixture(scope="module")
def exported(
    graph_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ClassMixture]:
    """A folder with a head of three classes, and its encoders in ``onnx``."""
    folder = tmp_path_factory.mktemp("exported")
    texts = [name for names in NAMES for name in names] + DEFINITIONS
    encoder = write_tiny_transformer(texts, folder=folder / "encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        head, _ = write_head(folder, shown_with={2: ["siren"]}, path=encoder)
    shutil.copytree(folder / "head", folder / "onnx" / "pointing")
    export_class_sentences(folder / "onnx", SIZE)
    return folder, head


def image_files(count: int) -> list[bytes]:
    files = []
    for seed in range(count):
        pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        file = BytesIO()
        Image.fromarray(pixels).resize((120, 90)).save(file, "PNG")
        files.append(file.getvalue())
    return files


def stored_vectors(head: Path) -> NDArray[np.float32]:
    stored = load_file(head / "classes.safetensors")
    named = stored["named"]
    return class_vectors(stored["synonyms"][named], stored["classes"][named], stored["definitions"])


@pytest.mark.slow
def test_images_are_sums_of_centered_class_vectors(exported: tuple[Path, ClassMixture]) -> None:
    folder, head = exported
    module = load_class_logits(describe(PADDED), folder / "weights.safetensors", head)
    vectors = stored_vectors(folder / "head").astype(float).tolist()
    classes, dim = len(vectors), len(vectors[0])
    center = [sum(vector[d] for vector in vectors) / classes for d in range(dim)]
    found = Embedder(folder / "onnx").embed_images(image_files(3))
    for content, vector in zip(image_files(3), found, strict=True):
        with Image.open(BytesIO(content)) as opened, torch.inference_mode():
            pixels = np.array(opened.resize((SIZE, SIZE), Image.Resampling.BICUBIC)).transpose(
                2, 0, 1
            )
            logits = module(torch.from_numpy(pixels)[None])[0].flatten(0, 1).double().tolist()
        probabilities = [0.0] * classes
        for cell in logits:
            exponents = [np.exp(value - max(cell)) for value in cell]
            for k in range(classes):
                probabilities[k] += exponents[k] / sum(exponents) / len(logits)
        expected = [
            sum(probabilities[k] * (vectors[k][d] - center[d]) for k in range(classes))
            for d in range(dim)
        ]
        assert vector == pytest.approx(np.array(expected) / np.linalg.norm(expected), abs=2e-4)


@pytest.mark.slow
def test_a_class_vector_is_the_normalized_sum_of_names_and_definition(
    exported: tuple[Path, ClassMixture],
) -> None:
    folder, _ = exported
    stored = load_file(folder / "head" / "classes.safetensors")
    # The first class has two names.
    names = stored["synonyms"][0] + stored["synonyms"][1]
    expected = names / np.linalg.norm(names) + stored["definitions"][0]
    assert stored_vectors(folder / "head")[0] == pytest.approx(
        expected / np.linalg.norm(expected), abs=1e-6
    )
    # The last class has one name, and a word that only pointing reads.
    assert stored["named"].tolist() == [True, True, True, True, False]
    expected = stored["synonyms"][3] + stored["definitions"][2]
    assert stored_vectors(folder / "head")[2] == pytest.approx(
        expected / np.linalg.norm(expected), abs=1e-6
    )


@pytest.mark.slow
def test_sentences_are_those_of_the_head(exported: tuple[Path, ClassMixture]) -> None:
    folder, _ = exported
    similarity = PointingHead(folder / "onnx" / "pointing").similarity
    (vector,) = Embedder(folder / "onnx").embed_sentences(["red fox"])
    (expected,) = similarity.graph.run(
        None, dict(zip(("ids", "lengths"), similarity.tokenizer.batch(["red fox"]), strict=True))
    )
    assert vector == pytest.approx(expected[0] / np.linalg.norm(expected[0]), abs=1e-6)


@pytest.mark.slow
def test_a_collection_reads_the_encoders(exported: tuple[Path, ClassMixture]) -> None:
    folder, _ = exported
    vectors = ImageVectors(folder / "onnx")
    assert vectors.reads_images
    assert vectors.graph.preprocessing["size"] == SIZE
    decoded = vectors.decode(image_files(1)[0], 10**6)
    assert decoded.pixels.shape == (3, SIZE, SIZE)
    assert vectors.encode_inputs(vectors.read_pixels([decoded.pixels]))[0].shape == (
        1,
        vectors.dimension,
    )
