"""The same query in Python, on the command line and over HTTP: ids, scores and probabilities."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pytest
from click.testing import CliRunner

import bifocal
from bifocal.search import Results
from bifocal.search.calibration.calibration import Calibration, Level
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import IndexSettings, build_index, index_of_collection
from bifocal.search.trained_model import COLLECTION, INDEX, TrainedModel
from pipelines.app import bifocal as commands
from tests.bifocal.serving.runs import write_run
from tests.bifocal.serving.server import Server
from tests.mlflow_server import free_port

TEXT = "a red star on sand with a blue moon"
SENTENCES: list[dict[str, Any]] = [
    {"text": TEXT},
    {"text": "the stock market"},
    {"text": "a zebra and a red star"},
    {"text": TEXT, "where": {"parity": "odd", "number": {"max": 90}}},
    {"text": TEXT, "group": "parity"},
]
SUMS: list[dict[str, Any]] = [
    {"text": TEXT, "plus": ["two rings"], "minus": ["snow", "wood"]},
    {"text": "a star", "minus": ["snow"], "where": {"number": [7, 8, 9]}},
]
MODES: list[dict[str, Any]] = [
    {"text": "even star", "mode": "hybrid"},
    {"text": "two rings", "mode": "hybrid", "where": {"parity": "even"}},
    {"text": "two rings", "mode": "hybrid", "group": "parity"},
    {"text": "a red star", "mode": "regions"},
]
IMAGES: list[dict[str, Any]] = [
    {"image": 42},
    {"image": 7, "plus": ["a star"], "minus": ["wood"]},
    {"image": 7, "where": {"parity": "even"}},
]
ITEMS: list[dict[str, Any]] = [{"like": "test-00030"}, {"like": "test-00030", "minus": ["snow"]}]
K = 12


@pytest.fixture(scope="module", params=["exact", "IVF8,SQ8"])
def run(
    request: pytest.FixtureRequest, demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run whose index has biases, a calibration and removed items."""
    folder = write_run(demo, tmp_path_factory.mktemp("interfaces") / "run", regions=True)
    index = index_of_collection(Collection.open(folder / COLLECTION), None)
    random = np.random.default_rng(0)
    index.bias = random.normal(0, 0.05, len(index)).astype(np.float32)
    index.description = replace(index.description, hubness={"name": "CSLS"})
    built = build_index(
        index,
        IndexSettings(request.param, recall=0.5),
        random.normal(size=(30, index.vectors.shape[1])),
    )
    presence = Level(-6.0, 12.0, 8.0, 0.4, 0.0, 0.0, 1.0, 100)
    built.calibration = Calibration(-4.0, 10.0, 5.0, 0.5, 0.0, 0.0, 1.0, 100, presence)
    (folder / INDEX).mkdir()
    built.without_items(["test-00103"]).write(folder / INDEX)
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> TrainedModel:
    return bifocal.load(run)


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    """The process of the service."""
    running = Server(
        free_port(),
        run.with_name("log.jsonl"),
        "--run",
        run,
        "--deletions",
        run.with_name("deleted.jsonl"),
    )
    running.start()
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


def image_file(model: TrainedModel, number: int) -> Path:
    image = model.collection.image(number)
    assert isinstance(image, Path)
    return image


def command(*arguments: object) -> str:
    """Return the output of ``bifocal``."""
    done = CliRunner().invoke(
        commands, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


def in_python(model: TrainedModel, case: dict[str, Any]) -> Results:
    options = {name: value for name, value in case.items() if name not in ("text", "image")}
    return model.search(
        case["text"] if "text" in case else image_file(model, case["image"]), K, **options
    )


def over_http(model: TrainedModel, server: Server, case: dict[str, Any]) -> Any:
    if "text" in case:
        return server.search(k=K, **case)
    query = [
        *(("plus", word) for word in case.get("plus", ())),
        *(("minus", word) for word in case.get("minus", ())),
    ]
    query += [("k", str(K)), ("where", json.dumps(case.get("where", {})))]
    path = "/api/v1/search/image?" + "&".join(f"{name}={quote(value)}" for name, value in query)
    body = image_file(model, case["image"]).read_bytes()
    return json.load(
        urlopen(
            Request(f"http://127.0.0.1:{server.port}{path}", body, {"content-type": "image/jpeg"})
        )
    )


def arguments(model: TrainedModel, case: dict[str, Any]) -> list[object]:
    """Arguments of ``bifocal search``."""
    found: list[object] = [
        case["text"] if "text" in case else image_file(model, case["image"]),
        "-k",
        K,
    ]
    for name in ("plus", "minus"):
        found += [part for word in case.get(name, ()) for part in (f"--{name}", word)]
    found += [
        part for name in ("mode", "group") if name in case for part in (f"--{name}", case[name])
    ]
    return [*found, "--where", json.dumps(case.get("where", {}))]


@pytest.mark.parametrize("case", [*SENTENCES, *SUMS, *MODES, *IMAGES], ids=str)
def test_all_interfaces_answer_alike(
    case: dict[str, Any], run: Path, model: TrainedModel, server: Server
) -> None:
    results, answer = in_python(model, case), over_http(model, server, case)
    scores = [hit.score for hit in results]
    assert scores == sorted(scores, reverse=True)  # the score that is shown sorts the results
    has_probability = case in SENTENCES or case.get("mode") == "hybrid"
    assert {hit.probability is not None for hit in results} == {has_probability}
    assert [hit["id"] for hit in answer["results"]] == [hit.id for hit in results]
    assert [hit["score"] for hit in answer["results"]] == pytest.approx(scores, abs=2e-6)
    for shown, hit in zip(answer["results"], results, strict=True):
        assert shown["probability"] == (
            None if hit.probability is None else pytest.approx(hit.probability, abs=2e-6)
        )
        assert shown["relevance"] == hit.relevance
    assert answer["found"] == results.found
    assert answer["unknown"] == results.unknown
    output = command("search", *arguments(model, case), "--run", run)
    lines = re.findall(r"^ +\d+\.  (\S+)(?: +(found|perhaps))? +(/\S+)", output, re.MULTILINE)
    expected = [
        (f"{hit.score:.4f}", "" if hit.relevance == "nothing" else hit.relevance or "")
        for hit in results
    ]
    assert [line[:2] for line in lines] == expected
    assert [line[2] for line in lines] == [str(hit.path) for hit in results]
    assert ("nothing like it" in output) == (not results.found)
    assert (f"does not know: {', '.join(results.unknown)}\n" in output) == bool(results.unknown)


def test_a_query_without_a_known_word_is_refused(
    model: TrainedModel, server: Server, run: Path
) -> None:
    reason = "the model knows none of the words of 'zebra': use words of its captions"
    with pytest.raises(ValueError, match=reason):
        model.search("zebra")
    body = json.dumps({"text": "zebra"}).encode()
    status, answer, _ = server.request(
        "POST", "/api/v1/search", body, {"content-type": "application/json"}
    )
    assert (status, json.loads(answer)["error"]) == (400, reason)
    assert (
        str(CliRunner().invoke(commands, ["search", "zebra", "--run", str(run)]).exception)
        == reason
    )
