"""Which part of an exported model answers where a phrase is, and phrases that are probably not in
an image."""

import asyncio
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from bifocal.onnx.files import model_hash
from bifocal.onnx.heatmaps import SIDE
from bifocal.onnx.pointing import FOLDER, PointingHead, open_pointer
from bifocal.onnx.pointing.pointer import LocalizerPointer
from bifocal.search.trained_model import COLLECTION, ONNX, TrainedModel, load
from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.live import Deletions
from bifocal.serving.service.models import RunSource
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.schema import PhraseHeatmap
from bifocal.serving.service.settings import Settings
from tests.bifocal.pointing_heads import write_head
from tests.bifocal.serving.runs import write_run


@pytest.fixture(scope="module")
def run(demo: TrainedModel, graph_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run folder of the demo with a pointing head that finds nothing probable."""
    folder = tmp_path_factory.mktemp("pointer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        write_head(folder, threshold=1.0, slope=0.1, offset=0.0)
    write_run(demo, folder / "run")
    before = model_hash(folder / "run" / ONNX)
    shutil.copytree(folder / "head", folder / "run" / ONNX / FOLDER)
    assert model_hash(folder / "run" / ONNX) == before  # the collection still belongs to the model
    return folder / "run"


def test_a_pointing_head_takes_the_place_of_the_localizer(run: Path, demo: TrainedModel) -> None:
    model = load(run)
    assert isinstance(model.pointer, PointingHead)
    assert isinstance(demo.pointer, LocalizerPointer)
    assert open_pointer(run / COLLECTION, model.embedder) is None


def test_a_phrase_that_is_probably_absent_has_no_point(run: Path) -> None:
    model = load(run)
    image = str(model.collection.image(0))
    location = model.where(image, "red fox")
    assert location.probability is not None
    assert not location.present
    assert location.picture().tobytes() == location.image.tobytes()
    with pytest.raises(ValueError, match="the phrase is empty"):
        model.where(image, " ")


def test_the_service_answers_without_a_point(run: Path) -> None:
    handlers = Handlers(RunSource(run), Settings(), Metrics(), Deletions())

    async def explain() -> list[PhraseHeatmap]:
        await handlers.reloader.refresh()
        item = next(iter(handlers.loaded().release.index))
        return (await handlers.explain(item, "a red fox and a cat")).phrases

    fox, cat = asyncio.run(explain())
    assert asyncio.run(handlers.information()).explains
    assert (fox.text, fox.point, fox.heatmap) == ("red fox", None, None)
    assert fox.probability is not None
    assert 0 <= fox.probability < 1
    assert (cat.text, cat.start) == ("cat", 16)
    handlers.threads.close()


def test_the_last_image_is_kept(run: Path) -> None:
    head = PointingHead(run / ONNX / FOLDER, sizes=(64,))
    model = load(run)
    content = Path(str(model.collection.image(1))).read_bytes()
    first = head.locate(content, ["fox"], SIDE)[0]
    graph, head.graph = head.graph, None  # type: ignore[assignment]  # the second phrase needs no network
    second = head.locate(content, ["fox", "cat"], SIDE)[0]
    assert first.heatmap.tolist() == second.heatmap.tolist()
    assert first.probability == second.probability
    head.graph, head.sizes = graph, (96,)
    (other,) = head.locate(content, ["fox"], SIDE)
    (expected,) = PointingHead(run / ONNX / FOLDER, sizes=(96,)).locate(content, ["fox"], SIDE)
    assert other.heatmap.tolist() == expected.heatmap.tolist() != first.heatmap.tolist()


@pytest.mark.parametrize(
    ("scores", "present"),
    [([[0.0, 0.0], [0.0, 0.0]], False), ([[0.0, 0.1], [0.0, 0.0]], True), ([[0.0]], True)],
)
def test_a_heatmap_without_a_peak_shows_no_place(scores: list[list[float]], present: bool) -> None:
    localizer, embedder = mock.Mock(), mock.Mock()
    localizer.heatmaps.return_value, localizer.boxes = (
        np.array([scores]),
        np.zeros((np.size(scores), 4)),
    )
    (place,) = LocalizerPointer(localizer, embedder).locate(b"", ["fox"], SIDE)
    assert (place.present, place.probability) == (present, None)
