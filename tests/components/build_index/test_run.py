"""The stage build_index, with the exported model of the demo and a collection of vectors made from
captions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets import read_dataset
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash
from bifocal.search import Search, SearchIndex
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from components.build_index.run import run
from components.build_index.spec import BuildIndexParams
from tests.bifocal.datasets.small import write_scenes

ONNX = Path(__file__).parents[3] / "pipelines" / "app" / "demo_model" / "onnx"
PARAMS = BuildIndexParams(
    seed=1, factory="auto", memory_mb=100, latency_ms=20, recall=0.9, queries=80, max_query_words=20
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("build_index")
    paths = {name: folder / name for name in ("dataset", "embedding", "collection")}
    for path in paths.values():
        path.mkdir()
    write_scenes(paths["dataset"], 2, 48, 2)
    dataset, embedder = read_dataset(paths["dataset"]), Embedder(ONNX)
    captions = dataset.captions.groupby("image_id")["text"].agg(list)
    description = Description(
        ModelIdentity("demo", "2", model_hash(ONNX)), ".", 192, None, {"size": 128}
    )
    writer = CollectionWriter(paths["collection"], description)
    for image_id, texts in captions.items():
        mean = embedder.embed_sentences(texts[:3]).mean(axis=0)
        writer.add(Item(str(image_id), None, "", 0, 0), mean / np.linalg.norm(mean))
    gone = Item("gone", None, "", 0, 0)
    writer.finish({str(name): texts for name, texts in captions.items()}, deleted=[gone])
    return {**paths, "onnx": ONNX}


def test_stage_writes_a_measured_and_calibrated_index(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    metrics = run(PARAMS, **inputs, index=tmp_path)
    index = SearchIndex.open(tmp_path, model=model_hash(ONNX))
    assert metrics["items"] == len(index) == 52
    assert "gone" not in index.ids
    assert (metrics["recall_at_10"], metrics["queries"]) == (1.0, 80)
    description = index.description
    assert description.factory is None
    assert description.model == ModelIdentity("demo", "2", model_hash(ONNX))
    assert description.preprocessing == {"size": 128}
    assert description.measured is not None
    assert metrics["p99_ms"] >= metrics["p50_ms"] > 0
    again = tmp_path / "again"
    again.mkdir()
    run(PARAMS, **inputs, index=again)
    assert (again / "index.json").read_bytes() == (tmp_path / "index.json").read_bytes()
    assert index.calibration is not None
    assert index.calibration.error == metrics["calibration_error"]
    caption = read_dataset(inputs["dataset"]).captions.iloc[20]
    hits = Search(index).batch(
        Embedder(ONNX).embed_sentences([caption["text"]]), 5, sentences=True
    )[0]
    assert caption["image_id"] in [hit.id for hit in hits]
    assert all(hit.probability is not None and 0 < hit.probability < 1 for hit in hits)


def test_a_given_factory_is_used_and_another_model_is_refused(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    metrics = run(PARAMS.model_copy(update={"factory": "IVF2,SQ8"}), **inputs, index=tmp_path)
    opened = SearchIndex.open(tmp_path)
    assert opened.description.factory == "IVF2,SQ8"
    assert metrics["recall_at_10"] >= PARAMS.recall
    file = inputs["collection"] / "collection.json"
    content = Description.read(file)
    replace(content, model=ModelIdentity("other", None, "ab" * 32)).write(file)
    with pytest.raises(
        ValueError, match="holds vectors of model 'other' with hash abababababab, but the queries"
    ):
        run(PARAMS, **inputs, index=tmp_path)
    content.write(file)
