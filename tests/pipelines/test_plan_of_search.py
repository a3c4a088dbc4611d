"""Predictions of embed_collection and build_index against written artifacts and real encoders."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from bifocal.export.encoders import chosen_localizer
from bifocal.features import RegionBatch
from bifocal.models import build_model
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.index.from_collection import index_of_collection
from pipelines.plan.devices import DEVICES
from pipelines.plan.make import make_plan
from pipelines.plan.plan import Plan, StagePlan
from runtime import parameters

ROOT = Path(__file__).parents[2]
DIM, IMAGES, SIDE = 96, 600, 4
OVERLAY: dict[str, Any] = {
    "prepare_dataset": {"corpus": {"name": "Scenes", "train": 400, "val": 100, "test": 100, "size": 64}},
    "extract_features": {
        "extractor": {"name": "Grid", "backbone": "resnet10t", "stage": 3, "size": 64,
                      "model_arguments": {"channels": [8, 8, 8, 8], "stem_width": 8}},
        "weights": {"name": "FromFile", "path": "weights.safetensors"},
    },
    "vectorize_captions": {"vectorizer": {"name": "Word2Vec", "dim": 10}},
    "train_embedding": {"model": {"name": "TwoBranchModel", "dim": DIM, "image_encoder": {"name": "SMILEEncoder"},
                                  "text_encoder": {"name": "SRUEncoder", "layers": 1}}},
}  # fmt: skip


def planned(stage: str, **settings: Any) -> StagePlan:
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), parameters.merge(OVERLAY, settings))
    plan: Plan = make_plan(values, DEVICES["cpu"])
    (found,) = (planned for planned in plan.stages if planned.name == stage)
    return found


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("regions", [False, True])
def test_collection_has_the_predicted_size(regions: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    identity = ModelIdentity("bifocal", None, "0" * 64)
    writer = CollectionWriter(tmp_path, Description(identity, "/images", DIM, DIM if regions else None))
    cells = SIDE * SIDE
    captions = {}
    words = np.array(["".join(letters) for letters in random.choice(list("abcdefghijklm"), size=(2000, 5))])
    for number in range(IMAGES):
        item_id = f"scene-{number:05d}"
        vector = random.normal(size=DIM).astype(np.float32)
        vectors, boxes = random.normal(size=(cells, DIM)).astype(np.float16), np.zeros((cells, 4), np.float32)
        digest = random.bytes(32).hex()
        found = (vectors, boxes) if regions else (None, None)
        writer.add(Item(item_id, f"images/{item_id}.jpg", digest, 64, 64), vector / np.linalg.norm(vector), *found)
        captions[item_id] = [" ".join(words[random.integers(len(words), size=10)]) for _ in range(5)]
    writer.finish(captions, pa.table({"item_id": list(captions)}))
    expected = planned("embed_collection", embed_collection={"regions": regions}).artifacts["collection"]
    assert expected == pytest.approx(size_of(tmp_path), rel=0.3)  # texts compress by more or less
    index = tmp_path / "index"
    index.mkdir()
    index_of_collection(Collection.open(tmp_path), None).write(index)
    assert planned("build_index").artifacts["index"] == pytest.approx(size_of(index), rel=0.3)


def test_regions_are_those_that_the_localizer_reads() -> None:
    ref = OVERLAY["train_embedding"]["model"]
    model: Any = build_model(ref, feature_dim=8, text_dim=10, text_format="tokens", vocabulary_size=5)
    localizer = chosen_localizer(model)
    assert localizer is not None
    cells = RegionBatch(torch.rand(1, SIDE**2, 8), torch.ones(1, SIDE**2, dtype=torch.bool), torch.zeros(1, SIDE**2, 4))
    count, dim = localizer.encode(model.image_encoder, cells).vectors.shape[-2:]
    with_regions = planned("embed_collection").artifacts["collection"]
    without = planned("embed_collection", embed_collection={"regions": False}).artifacts["collection"]
    assert with_regions - without == IMAGES * count * (2 * dim + 16)


def test_model_of_late_interaction_has_neither_stage() -> None:
    recipe = ROOT / "recipes" / "papers" / "multi_level_vgg_referit.yaml"
    plan = make_plan(parameters.load(ROOT / "params.yaml", [recipe]), DEVICES["h100"])
    assert not {"embed_collection", "build_index"} & {stage.name for stage in plan.stages}
