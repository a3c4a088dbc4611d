"""``python -m pipelines monitor`` with the demo's model: a reference, a quiet week, and a week with
another style."""

import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import mlflow
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import ImageFilter, ImageOps

from bifocal.onnx.files import model_hash
from bifocal.onnx.images import open_image
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.index.build import index_of_collection
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel
from bifocal.serving.service.observation import JSONFormatter, Metrics, log_request
from pipelines.app.demo import unpack
from pipelines.commands.monitor import CROSSED, monitor
from pipelines.policies import THRESHOLDS, load_thresholds

TRAINED, QUIET, STYLED = range(120), range(120, 180), range(180, 240)
SECRET = "a secret purple heart"


@dataclass
class World:
    """A run that grows, and its log; ``vectors`` belong to the images 0 to 239, the last 60 of
    which are drawn."""

    demo: TrainedModel
    folder: Path
    vectors: np.ndarray
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def log(self) -> Path:
        return self.folder / "service.log"

    def embed(self, rows: range, rejected: int = 0) -> None:
        """Write collection and index of images 0 to ``rows.stop``."""
        onnx = self.folder / "run" / ONNX
        for part in (COLLECTION, INDEX):
            shutil.rmtree(self.folder / "run" / part, ignore_errors=True)
        identity = ModelIdentity("demo", None, model_hash(onnx))
        description = Description(identity, "/", self.vectors.shape[1], None)
        writer = CollectionWriter(self.folder / "run" / COLLECTION, description)
        for row in range(rows.stop):
            path = str(self.demo.collection.image(row)).lstrip("/")
            writer.add(Item(f"image-{row}", path, f"{row:064d}", 128, 128), self.vectors[row])
        for number in range(rejected):
            writer.reject(f"broken-{number}.jpg", "cannot be decoded")
        writer.finish(
            {f"image-{row}": self.demo.collection.captions(row) for row in range(rows.stop)}
        )
        index = index_of_collection(Collection.open(self.folder / "run" / COLLECTION), None)
        index.calibration = Calibration(-6.0, 8.0, 6.0, 0.5, 0.0, 0.05, 0.9, 100)
        (self.folder / "run" / INDEX).mkdir()
        index.write(self.folder / "run" / INDEX)

    def ask(self, day: str, queries: list[str]) -> None:
        """Append searches to the log, as the service does."""
        with self.log.open("a") as file:
            handler = logging.StreamHandler(file)
            handler.setFormatter(JSONFormatter())
            moment = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
            logger = logging.getLogger("bifocal.requests")
            logger.addHandler(handler)
            logger.setLevel("INFO")
            handler.addFilter(lambda record: setattr(record, "created", moment) or True)
            for query in queries:
                state = {
                    "log": {"results": 3, "text": query, "like": None, "plus": [], "minus": []}
                }
                log_request(self.metrics, state, "POST", "/api/v1/search", 200, time.perf_counter())
            logger.removeHandler(handler)

    def run(self, *options: str) -> Result:
        """Run the command."""
        paths = [
            "--run",
            self.folder / "run",
            "--to",
            self.folder / "monitoring",
            "--queries",
            self.log,
        ]
        return CliRunner().invoke(monitor, [*map(str, paths), *options], catch_exceptions=False)

    def values(self, day: str) -> dict[str, dict[str, float]]:
        """Return the findings of a day by their names."""
        content = json.loads((self.folder / "monitoring" / day / "monitor.json").read_text())
        return {finding["name"]: finding for finding in content["findings"]}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The run, with its reference written on 2026-11-01."""
    folder = tmp_path_factory.mktemp("monitored")
    demo = unpack(folder / "demo")
    shutil.copytree(demo.directory / ONNX, folder / "run" / ONNX)
    images = [open_image(demo.directory / "images" / f"{row:05d}.jpg") for row in STYLED]
    drawn = [
        ImageOps.grayscale(image).filter(ImageFilter.CONTOUR).convert("RGB") for image in images
    ]
    vectors = np.asarray(demo.collection.vectors[: STYLED.stop], np.float32)
    vectors[STYLED.start :] = demo.encode_image(drawn)
    world = World(demo, folder, vectors)
    world.embed(TRAINED)
    captions = [demo.collection.captions(row)[-1] for row in range(256)]
    world.ask("2026-10-31", [*captions[:120], SECRET])
    world.ask("2026-11-07", captions[120:190])
    world.ask(
        "2026-11-13",
        [*captions[190:240], *[f"{n} dogs jump over a wall and bark" for n in range(20)]],
    )
    result = world.run("--reference", "--until", "2026-11-01")
    assert result.exit_code == 0, result.output
    assert "reference of 120 images and 121 queries" in result.output
    return world


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Messages that the web hook got."""
    messages: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(
                json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("BIFOCAL_NOTICE_URL", f"http://127.0.0.1:{server.server_address[1]}/")
    yield messages
    server.shutdown()
    server.server_close()


def test_quiet_week_then_a_week_with_another_style(
    built: World, mlflow_store: str, hook: list[str]
) -> None:
    built.embed(QUIET)
    quiet = built.run("--until", "2026-11-08")
    assert quiet.exit_code == 0, quiet.output
    assert hook == []
    week = json.loads((built.folder / "monitoring/2026-11-08/monitor.json").read_text())
    groups = week["counts"].pop("independent groups of images")
    assert groups == 60  # one folder, no dates
    assert week["counts"] == {"new images": 60, "queries": 70, "rejected images": 0}
    assert len(week["findings"]) == 4

    built.embed(STYLED, rejected=9)
    loud = built.run("--until", "2026-11-15")
    assert loud.exit_code == CROSSED, loud.output
    values = built.values("2026-11-15")
    crossed = {name for name, finding in values.items() if finding["crossed"]}
    assert crossed >= {"images", "unknown_words"}
    week = json.loads((built.folder / "monitoring/2026-11-15/monitor.json").read_text())
    assert week["counts"]["rejected images"] == 9
    (message,) = hook
    assert "squared maximum mean discrepancy of the image vectors" in message
    page = (built.folder / "monitoring/2026-11-15/index.html").read_text()
    assert page.count(">crossed<") == len(crossed)
    assert "cannot be decoded" in page
    assert page.count("<img") >= 12  # unusual images
    assert "2 runs." in page
    textfile = (built.folder / "monitoring/monitor.prom").read_text()
    assert 'bifocal_monitor_crossed{test="images"} 1' in textfile

    before = values
    assert built.run("--until", "2026-11-15").exit_code == CROSSED
    assert built.values("2026-11-15") == before, (
        "a second run for the same day gives the same results"
    )

    client = mlflow.MlflowClient(mlflow_store)
    (run,) = client.search_runs([entry.experiment_id for entry in client.search_experiments()])
    history = {
        entry.step: entry.value
        for entry in client.get_metric_history(run.info.run_id, "thresholds_crossed")
    }
    assert history == {7: 0.0, 14: float(len(crossed))}
    assert [entry.path for entry in client.list_artifacts(run.info.run_id, "2026-11-15")] == [
        "2026-11-15/index.html"
    ]


def test_no_file_has_a_query(built: World) -> None:
    files = [path for path in (built.folder / "monitoring").rglob("*") if path.is_file()]
    assert {"reference.json", "queries.npy", "images.parquet"} <= {path.name for path in files}
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_results_are_written_while_mlflow_is_down(
    built: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    built.embed(QUIET)
    result = built.run("--until", "2026-11-29")
    assert result.exit_code == 1
    assert re.search("error: MLflow at http://127.0.0.1:9", result.output)
    assert (
        json.loads((built.folder / "monitoring/2026-11-29/monitor.json").read_text())["counts"][
            "queries"
        ]
        == 0
    )


def test_after_a_new_reference_no_image_is_new(
    built: World, tmp_path: Path, mlflow_store: str
) -> None:
    shutil.copytree(built.folder / "monitoring", tmp_path / "monitoring")
    built.embed(STYLED)
    options = ("--to", str(tmp_path / "monitoring"), "--until", "2026-11-15")
    assert built.run(*options, "--reference").exit_code == 0
    assert built.run(*options).exit_code == 0
    content = json.loads((tmp_path / "monitoring/2026-11-15/monitor.json").read_text())
    assert content["counts"]["new images"] == 0


@pytest.mark.parametrize(
    ("sentences", "logs"), [("true", False), ("hashed", True), ("false", True), ("hashed", False)]
)
@pytest.mark.usefixtures("mlflow_store")
def test_a_reference_survives_a_promotion(
    built: World, tmp_path: Path, sentences: str, logs: bool
) -> None:
    """The review of commit 097c66e: with weekly promotions, nothing was ever compared."""
    file, target = tmp_path / "thresholds.yaml", tmp_path / "monitoring"
    file.write_text(
        THRESHOLDS.read_text().replace("keep_queries: false", f"keep_queries: {sentences}")
    )
    options = ("--thresholds", str(file), "--to", str(target))
    built.embed(TRAINED)
    assert built.run(*options, "--reference", "--until", "2026-11-01").exit_code == 0
    reference = json.loads((target / "reference/reference.json").read_text())
    assert bool(reference["sentences"]) == (sentences == "true")
    assert bool(reference["hashes"]) == (sentences == "hashed")
    assert (SECRET in json.dumps(reference)) == (sentences == "true")
    other = World(built.demo, tmp_path, built.vectors)
    shutil.copytree(built.folder / "run" / ONNX, tmp_path / "run" / ONNX)
    (tmp_path / "run" / ONNX / "preprocessing.json").open("a").write("\n")
    other.log.write_text("".join(line for line in built.log.open() if logs or "2026-11-13" in line))
    other.embed(STYLED)
    assert other.run(*options, "--until", "2026-11-15").exit_code == CROSSED
    crossed = {name for name, finding in other.values("2026-11-15").items() if finding["crossed"]}
    assert crossed >= {"images", *(["unknown_words"] if sentences == "true" or logs else [])}
    assert json.loads((target / "reference/reference.json").read_text())["day"] == (
        "2026-11-01" if sentences == "true" or logs else "2026-11-15"
    )


@pytest.mark.usefixtures("mlflow_store")
def test_a_run_removes_text_that_is_too_old_or_not_allowed_any_more(
    built: World, tmp_path: Path
) -> None:
    file, target = tmp_path / "thresholds.yaml", tmp_path / "monitoring"

    def text_after(day: str, keep: str, days: str) -> list[bool]:
        content = THRESHOLDS.read_text().replace("keep_queries: false", f"keep_queries: {keep}")
        file.write_text(content.replace("keep_days: null", f"keep_days: {days}"))
        written = target.exists()
        options = ("--thresholds", str(file), "--to", str(target), "--until", day)
        built.run(*options, *(() if written else ("--reference",)))
        reference = json.loads((target / "reference/reference.json").read_text())
        return [reference[name] is not None for name in ("sentences", "hashes")]

    assert text_after("2026-11-01", "true", "null") == [True, False]
    assert text_after("2026-11-08", "true", "7") == [True, False]
    assert text_after("2026-11-08", "hashed", "7") == [False, True]
    assert text_after("2026-11-15", "hashed", "7") == [False, False]


def test_thresholds_are_checked(built: World, tmp_path: Path) -> None:
    file = tmp_path / "thresholds.yaml"
    text = THRESHOLDS.read_text()
    for old, new, message in (
        ("permutations: 1999", "permutations: 200", "permutations is 200"),
        ("  queries: 0.001", "  sentences: 0.001", "min_change.sentences"),
    ):
        file.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            load_thresholds(file)  # as the compilation of the flow "monitor" reads it
        with pytest.raises(ValueError, match=message):
            built.run("--thresholds", str(file))
