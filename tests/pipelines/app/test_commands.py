"""The command ``bifocal`` on a folder of images: train, search, where, evaluate, export,
inspect."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import bifocal
from bifocal.datasets import read_dataset
from bifocal.search.collection.collection import Collection
from runtime.artifacts import hash_files
from tests.pipelines.app.conftest import Command


def test_training_leaves_a_report_and_a_collection(trained: Path) -> None:
    dataset = read_dataset(trained / "artifacts" / "dataset")
    assert (trained / "artifacts" / "report" / "index.html").is_file()
    collection = Collection.open(trained / "artifacts" / "collection")
    assert collection.ids == dataset.images["image_id"].tolist()
    assert np.linalg.norm(collection.vectors[:].astype(float), axis=1) == pytest.approx(1, abs=2e-3)


def test_a_second_training_repeats_nothing(
    trained: Path, photos: Path, recipe: Path, command: Command
) -> None:
    result = command(
        "train", photos, "--run", trained, "--recipe", recipe, "--set", "seed=3", "--budget", "1h"
    )
    assert result.exit_code == 0, result.output
    assert (
        result.output.count("up to date") == 11
    )  # the check of splits, and the choice within the budget, repeat some
    assert "[3/8]" in result.output


def test_every_file_of_a_run_can_be_read_by_whom_the_umask_lets(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain").touch()
    expected = (tmp_path / "plain").stat().st_mode
    files = [path for path in trained.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".onnx", ".safetensors", ".parquet", ".json"}
    assert {path: path.stat().st_mode for path in files if path.stat().st_mode != expected} == {}


def test_the_facade_encodes_searches_and_localizes(trained: Path) -> None:
    model = bifocal.load(trained)
    texts = model.encode_text(["a red star", "a blue circle"])
    assert texts.shape == (2, 16)
    path = str(model.collection.image(0))
    (image,) = model.encode_image([path])
    stored = model.collection.vectors[0].astype(np.float32)
    assert image == pytest.approx(stored, abs=2e-3)
    with Image.open(path) as opened:
        assert model.encode_image([opened])[0] == pytest.approx(image)
    hits = model.search("a red star", k=3)
    assert model.index.bias is not None
    scores = model.collection.vectors[:].astype(np.float32) @ texts[0] + model.index.bias
    order = np.argsort(-scores)
    assert [hit.id for hit in hits] == [model.collection.ids[row] for row in order[:3]]
    assert [hit.score for hit in hits] == pytest.approx(scores[order[:3]].tolist(), abs=1e-5)
    assert model.search(Path(path), k=1)[0].id == model.collection.ids[0]
    location = model.where(path, "red star")
    assert location.heatmap.shape == (96, 96)
    row, column = int(location.point[1] * 96), int(location.point[0] * 96)
    assert location.heatmap[row, column] == location.heatmap.max()


def test_search_and_where_write_pictures(trained: Path, command: Command) -> None:
    result = command("search", "a red star", "--run", trained, "-k", 4)
    assert result.exit_code == 0, result.output
    collection = Collection.open(trained / "artifacts" / "collection")
    names = [str(collection.image(row)) for row in range(len(collection))]
    assert sum(name in result.output for name in names) == 4
    assert Image.open(trained / "search.png").width > 4 * 200
    image = names[0]
    result = command("where", image, "red star", "--run", trained)
    assert result.exit_code == 0, result.output
    assert "from the left" in result.output
    assert Image.open(trained / "where.png").size == (64, 64)


def test_evaluate_another_split(trained: Path, command: Command, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")  # other tests need the metrics of the split test
    result = command("evaluate", "--run", tmp_path / "run", "--split", "val")
    assert result.exit_code == 0, result.output
    images = read_dataset(trained / "artifacts" / "dataset").split("val").images
    assert f"{len(images)} images" in result.output


def test_export_copies_the_product(trained: Path, command: Command, tmp_path: Path) -> None:
    result = command("export", tmp_path / "model", "--run", trained)
    assert result.exit_code == 0, result.output
    assert {"image_encoder.onnx", "text_encoder.onnx", "backbone.onnx", "README.md"} <= {
        p.name for p in (tmp_path / "model").iterdir()
    }
    result = command("export", tmp_path / "model", "--run", trained)
    assert isinstance(result.exception, FileExistsError)


def test_export_writes_the_collection_as_a_table(
    trained: Path, command: Command, tmp_path: Path
) -> None:
    result = command("export", tmp_path / "table", "--run", trained, "--format", "parquet")
    assert result.exit_code == 0, result.output
    assert "60 images" in result.output
    (file,) = (tmp_path / "table").rglob("*.parquet")
    assert pq.read_metadata(file).num_rows == 60
    result = command("export", tmp_path / "model", "--run", trained, "--collection", tmp_path)
    assert "--collection needs --format parquet" in result.output


def test_a_trained_run_indexes_another_folder_and_stays_as_it_is(
    trained: Path, pictures: Path, command: Command, tmp_path: Path
) -> None:
    previous, target = hash_files(trained / "artifacts"), tmp_path / "index"
    result = command("index", pictures, "--run", trained, "--folder", target)
    assert result.exit_code == 0, result.output
    assert "10 images can be searched: 10 new, 0 changed, 0 removed; " in result.output
    assert "1 left out:\n  cut.jpg: cannot be decoded" in result.output
    assert hash_files(trained / "artifacts") == previous
    for query in ("a red star", str(pictures / "0.jpg")):
        found = command("search", query, "--run", target, "-k", 10)
        assert found.exit_code == 0, found.output
        assert str(pictures / "more" / "1.jpg") in found.output
    assert command("where", pictures / "0.jpg", "red star", "--run", target).exit_code == 0
    # Scores of sentences are corrected as in the trained run.
    assert (target / "artifacts" / "index" / "bias.npy").is_file()


def test_inspect_finds_what_is_wrong(photos: Path, command: Command, tmp_path: Path) -> None:
    result = command("inspect", photos, "--page", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "60" in result.output
    copy = tmp_path / "broken"
    copy.mkdir()
    files = {path.name: path for path in photos.rglob("*.jpg")}
    names = sorted(files)[:4]
    for name in names:
        (copy / name).write_bytes(files[name].read_bytes())
    (copy / "twin.jpg").write_bytes(files[names[0]].read_bytes())
    (copy / "cut.jpg").write_bytes(files[names[1]].read_bytes()[:60])
    rows = [{"image": name, "text": f"a picture of {name}", "split": "train"} for name in names]
    rows += [
        {"image": "twin.jpg", "text": "dog", "split": "test"},
        {"image": "cut.jpg", "text": "a b c", "split": "val"},
    ]
    (copy / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    page = tmp_path / "page.html"
    result = command("inspect", copy, "--page", page)
    assert result.exit_code == 1
    text = page.read_text()
    assert "near-duplicates in two splits" in text
    assert "very short captions" in text
    assert "cut.jpg" in text


def test_errors_name_what_to_do(command: Command, tmp_path: Path) -> None:
    result = command("search", "a red star")
    assert "write one with 'bifocal index DIR' or 'bifocal train DIR'" in str(result.exception)
    result = command("train", tmp_path, "--weights", tmp_path / "none.safetensors")
    assert "has no images" in str(result.exception)
    assert command("--help").output.count("  train") == 1
