"""Predicted memory and work of initializations against fits that run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bifocal.baselines.cca import PairedBlock, fit_cca
from bifocal.datasets.published import PublishedCorpus
from bifocal.models import build_model
from bifocal.planning.features import ExpectedFeatures
from bifocal.planning.initialization import simulate_initialization
from bifocal.planning.simulation import Work
from bifocal.planning.training import ModelInputs, simulate_embedding
from bifocal.text.expected import ExpectedText
from bifocal.text.format import TextFormat

ROOT = Path(__file__).parents[3]
IMAGE_DIM, TEXT_DIM, DIM, IMAGES = 500, 800, 400, 128
LINEAR = {"name": "TwoBranchModel", "dim": DIM, "image_encoder": "LinearEncoder", "text_encoder": "LinearEncoder"}
CORPUS = PublishedCorpus(images={"train": IMAGES}, captions_per_image=2.0, phrase_pairs=2 * IMAGES)
VECTORS = ExpectedText(TextFormat("vectors", TEXT_DIM))
SMALL_NETWORK = {"channels": [8, 16, 24, 32], "stem_width": 8}


def memory(name: str) -> int:
    """Return VmRSS, or its maximum VmHWM, of this process in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def fitting_memory() -> int:
    """Return the most memory that a fit of CCA takes, in bytes."""
    model = build_model(LINEAR, feature_dim=IMAGE_DIM, text_dim=TEXT_DIM, text_format="vectors", vocabulary_size=None)
    texts = torch.arange(2 * IMAGES) // 2
    block = PairedBlock(torch.randn(IMAGES, IMAGE_DIM).double(), torch.randn(2 * IMAGES, TEXT_DIM), texts)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    fit_cca(model, [block])
    return memory("VmHWM") - before


@pytest.mark.parametrize("initialization", ["CCA", "PhraseCCA"])
def test_cca_needs_the_predicted_memory(initialization: str) -> None:
    inputs = ModelInputs(LINEAR, ExpectedFeatures(1, IMAGE_DIM), VECTORS, words=1)
    cost = simulate_initialization(inputs, {"name": initialization}, CORPUS)
    assert cost is not None
    assert cost.images == IMAGES
    covariances = 8 * (IMAGE_DIM**2 + TEXT_DIM**2 + IMAGE_DIM * TEXT_DIM)
    assert cost.peak > 2 * covariances
    # The covariances of all pairs, and the decompositions as often as the code calls them.
    assert cost.work.flops > 2 * IMAGES * (IMAGE_DIM**2 + TEXT_DIM**2 + IMAGE_DIM * TEXT_DIM)
    if initialization == "PhraseCCA":
        return  # the same fit, to other pairs
    # In a process of its own: this one may reuse memory that another test has freed.
    command = "from tests.bifocal.planning.test_initialization import fitting_memory; print(fitting_memory())"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert cost.peak == pytest.approx(int(done.stdout), rel=0.3)


def test_whitening_reads_its_images_once() -> None:
    encoder = {"name": "RMACEncoder", "backbone": "resnet10t", "model_arguments": SMALL_NETWORK, "scales": 1}
    model = {"name": "TwoBranchModel", "dim": 16, "image_encoder": encoder, "text_encoder": "LinearEncoder"}
    features = ExpectedFeatures(64, 3, pixels=(64, 96), image=(64, 96), decodes=True)
    inputs = ModelInputs(model, features, VECTORS, words=1)
    corpus = PublishedCorpus(images={"train": 1_000})
    costs = [simulate_initialization(inputs, {"name": "PCAWhitening", "images": n}, corpus) for n in (100, 5_000)]
    assert [cost.images for cost in costs if cost] == [100, 1_000]
    difference = costs[1].work.flops - costs[0].work.flops if costs[0] and costs[1] else 0.0
    embedded: Work = simulate_embedding(inputs, 32).image
    assert difference == pytest.approx(900 * embedded.flops, rel=0.05)


def test_stored_embedding_costs_nothing() -> None:
    inputs = ModelInputs(LINEAR, ExpectedFeatures(1, IMAGE_DIM), VECTORS, words=1)
    cost = simulate_initialization(inputs, {"name": "FromEmbedding", "path": "embedding"}, CORPUS)
    assert cost is not None
    assert (cost.peak, cost.images) == (0, 0)
