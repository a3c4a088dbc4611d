"""``bifocal demo``: the shipped model answers, and the light commands run without torch."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.datasets import write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.datasets.scenes.drawing import box_of, draw_scene
from bifocal.datasets.scenes.layout import SceneObject
from bifocal.hubness.bank import HubnessBank
from bifocal.search.trained_model import TrainedModel
from docs import make_demo
from pipelines.app import demo as demo_module
from pipelines.app.demo import QUERIES, RECIPE, SHIPPED, tiles, unpack
from runtime import parameters
from tests.margins import beyond_chance, margin
from tests.pipelines.app.conftest import Command

ROOT = Path(__file__).parents[3]
NOT_INSTALLED = (
    *("torch", "torchvision", "timm", "gensim", "sklearn", "scipy", "h5py", "matplotlib"),
    *(
        "mlflow",
        "boto3",
        "onnx",
        "onnxscript",
        "filelock",
        "transformers",
        "tokenizers",
        "langdetect",
    ),
)
"""Packages that the extra ``cpu`` does not install."""
LIGHT = f"""
import sys
from click.testing import CliRunner
for package in {NOT_INSTALLED}:
    sys.modules[package] = None
from pipelines.app import bifocal
def run(*arguments):
    result = CliRunner().invoke(bifocal, arguments)
    print(result.output, result.exception or "", file=sys.stderr)
    return result
folder, photos = sys.argv[1:]
assert run("--help").exit_code == 0
assert run("demo", "two blue rhombuses", "--folder", folder, "-k", "2").exit_code == 0
assert run("search", "a red star", "--run", folder).exit_code == 0
assert run("search", folder + "/images/00003.jpg", "--run", folder).exit_code == 0
assert run("where", folder + "/images/00003.jpg", "red star", "--run", folder).exit_code == 0
assert run("inspect", photos, "--page", folder + "/page.html").exit_code == 0
assert run("export", folder + "/copy", "--run", folder).exit_code == 0
expected = "Error: 'bifocal train' needs the package boto3: pip install '.[train,cpu]'\\n"
assert run("train", photos).output == expected
assert run("evaluate", "--run", folder).exit_code == 1
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return unpack(tmp_path_factory.mktemp("demo") / "new")


@pytest.mark.slow
def test_light_commands_run_without_torch(tmp_path: Path, photos: Path) -> None:
    command = [sys.executable, "-c", LIGHT, str(tmp_path / "demo"), str(photos)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Image.open(tmp_path / "demo" / "two-blue-rhombuses.png").width > 500


def test_shipped_files_are_small_and_of_the_present_format() -> None:
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_000_000
    assert not [path.name for path in files if b"site-packages" in path.read_bytes()], (
        "paths of the exporting machine"
    )
    assert {"scores", "vectors", "arguments", "boxes"} == json.loads(
        (SHIPPED / "onnx" / "localizer.json").read_text()
    ).keys()
    recipe = parameters.load(ROOT / "params.yaml", [SHIPPED / RECIPE])
    corpus = {
        name: value for name, value in recipe["prepare_dataset"]["corpus"].items() if name != "name"
    }
    scenes = Scenes(seed=recipe["seed"], **corpus)
    shown = tiles(SHIPPED / "images.webp", 256)
    for number in (0, 100, 255):
        drawn = np.asarray(draw_scene(scenes.scene("test", number)[0], 128), dtype=float)
        assert np.abs(np.asarray(shown[number], dtype=float) - drawn).mean() < 8


def test_captions_and_queries_find_their_images(demo: TrainedModel) -> None:
    captions = [demo.collection.captions(row)[0] for row in range(len(demo.collection))]
    scores = demo.encode_text(captions) @ demo.collection.vectors[:].astype(np.float32).T
    assert (scores.argmax(axis=1) == np.arange(256)).mean() > beyond_chance(256, 1 / 256)
    for query, words in zip(
        QUERIES, ("red chequered stars", "blue rhombuses", "green triangles"), strict=True
    ):
        assert words in demo.search(query, k=1)[0].captions[0]


def test_shipped_vectors_are_those_of_the_shipped_graphs(demo: TrainedModel) -> None:
    paths = [str(demo.collection.image(row)) for row in range(8)]
    np.testing.assert_allclose(demo.encode_image(paths), demo.collection.vectors[:8], atol=0.05)


def test_phrases_point_into_their_boxes(demo: TrainedModel) -> None:
    scenes, hits, centers = Scenes(seed=1), list[bool](), list[bool]()
    for number in range(60):
        for sentence in scenes.scene("test", number)[1][:1]:
            for phrase, group in sentence.phrases:
                boxes = [boxed(item) for item in group]
                point = demo.where(str(demo.collection.image(number)), phrase).point
                for found, (x, y) in ((hits, point), (centers, (0.5, 0.5))):
                    found.append(any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in boxes))
    assert np.mean(hits) > np.mean(centers) + margin(len(hits))


def boxed(item: SceneObject) -> tuple[float, ...]:
    return tuple(side / 128 for side in box_of(item, 128))


def test_the_demo_keeps_what_is_there(command: Command, demo: TrainedModel, tmp_path: Path) -> None:
    before = (demo.directory / "images" / "00000.jpg").stat().st_mtime_ns
    assert unpack(demo.directory).collection.model == demo.collection.model
    assert (demo.directory / "images" / "00000.jpg").stat().st_mtime_ns == before
    (tmp_path / "holiday.jpg").write_bytes(b"mine")
    result = command("demo", "--folder", tmp_path)
    assert isinstance(result.exception, FileExistsError)


def test_the_demo_has_the_corrected_order_of_its_bank(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SHIPPED, tmp_path / "shipped")
    for module in (make_demo, demo_module):
        monkeypatch.setattr(module, "SHIPPED", tmp_path / "shipped")
    for name in ("dataset", "embedding"):
        (tmp_path / "artifacts" / name).mkdir(parents=True)
    corpus = Scenes(train=1, val=0, test=12, size=128).read(tmp_path / "images")
    limits = {"max_pixels": 20_000, "max_rejected_fraction": 0.0}
    write_dataset(tmp_path / "artifacts" / "dataset", "Scenes", corpus, copy_images=True, **limits)
    query, folder = "a red star", tmp_path / "demo"
    for k in (1, 3):
        random = np.random.default_rng(k).normal(size=(20, 192))
        bank = HubnessBank.build(random, random, {"name": "CSLS", "k": k})
        bank.write(tmp_path / "artifacts" / "embedding")
        make_demo.write_collection(tmp_path / "artifacts")
        model = unpack(folder)
        vectors = model.collection.vectors[:].astype(np.float64)
        cosines = vectors @ model.encode_text([query])[0]
        # CSLS, Conneau et al., ICLR 2018: 2 cos(x, y) - r(x) - r(y), with r the mean of the k
        # nearest of the bank.
        nearest = np.sort(vectors @ bank.captions.astype(np.float64).T, axis=1)[:, -k:].mean(axis=1)
        expected = np.argsort(-(2 * cosines - nearest))
        assert expected.tolist() != np.argsort(-cosines).tolist()
        result = command("search", query, "--run", folder, "-k", "12")
        found = [
            int(line.split(".jpg")[0][-5:]) for line in result.output.splitlines() if ".jpg" in line
        ]
        assert found == expected.tolist()
