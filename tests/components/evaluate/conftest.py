"""A small line up to evaluate: scenes, cells with boxes, word vectors and an untrained SMILE."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.features import FeatureWriter
from bifocal.features.boxes import cell_boxes
from bifocal.models import build_model, save_model
from bifocal.text import TextStore
from bifocal.text.vectorizers import Word2Vec
from bifocal.text.vectorizers.base import write_text
from components.evaluate.run import run
from components.evaluate.spec import EvaluateParams
from runtime.artifacts import commit, open_partial
from tests.browser import Tab, browser, find_chromium

SIDE, DIM, WORDS = 3, 12, 8
PARAMS = {
    "seed": 1, "split": "test", "protocol": "full", "recall_at": [1, 5], "curve_to": 10, "resamples": 100,
    "pointing": {"name": "AutoLocalizer"}, "triplets": None, "champion": None, "examples": 2, "compared_images": 100,
}  # fmt: skip
INPUTS = ("dataset", "features", "text", "embedding")


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complete artifacts, as the stages before evaluate leave them."""
    folder = tmp_path_factory.mktemp("artifacts")
    partial = {name: open_partial(folder / name, {}) for name in INPUTS}
    corpus = Scenes(train=2, val=1, test=9, size=64).read(partial["dataset"] / "images")
    write_dataset(partial["dataset"], "Scenes", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=0.0)
    dataset = read_dataset(partial["dataset"])
    random = np.random.default_rng(0)
    with FeatureWriter(partial["features"], regions=SIDE**2, dim=DIM, metadata={}) as writer:
        for image_id in dataset.images["image_id"]:
            writer.add(image_id, random.normal(size=(SIDE**2, DIM)).astype(np.float32), cell_boxes(SIDE, SIDE).numpy())
    vectorizer = Word2Vec(dim=WORDS, min_count=1, epochs=1)
    captions = list(dataset.captions["text"])
    vectorizer.fit(captions, seed=0)
    write_text(partial["text"], vectorizer, dataset.captions["caption_id"].tolist(), captions)
    text = TextStore(partial["text"])
    torch.manual_seed(0)
    model = build_model(
        {"name": "TwoBranchModel", "dim": 6, "image_encoder": "SMILEEncoder", "text_encoder": "GRUEncoder"},
        feature_dim=DIM, text_dim=WORDS, text_format=text.format.name, vocabulary_size=len(text.word_vectors),
    )  # fmt: skip
    save_model(partial["embedding"], model)
    for name in INPUTS:
        manifest = {"component": f"a stage of {name}", "code": "c0de", "inputs": {}, "parameters": {"seed": 1}}
        commit(partial[name], folder / name, manifest | {"metrics": {"images": 12.0}})
    return folder


def evaluate(artifacts: Path, folder: Path, **changes: object) -> dict[str, float]:
    """Run the stage into ``folder``; returns what it tracks."""
    for name in ("metrics", "report"):
        (folder / name).mkdir(parents=True)
    params = EvaluateParams.model_validate_json(json.dumps(PARAMS | changes))
    inputs = {name: artifacts / name for name in INPUTS}
    return run(params, **inputs, metrics=folder / "metrics", report=folder / "report")


@pytest.fixture(scope="session")
def evaluated(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stage has written ``metrics`` and ``report``."""
    folder = tmp_path_factory.mktemp("evaluated")
    evaluate(artifacts, folder)
    return folder


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A page of headless Chromium; .ci/run installs it, and there it must be."""
    program = find_chromium()
    if program is None:
        message = "no Chromium on the path: apt-get install chromium, or set CHROMIUM"
        if os.environ.get("BIFOCAL_NEEDS_CHROMIUM"):
            pytest.fail(message)
        pytest.skip(message)
    with browser(program, tmp_path_factory.mktemp("profile")) as page:
        yield page
