"""``bifocal search`` on the demo's collection: probabilities, and queries that find nothing."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import bifocal
from bifocal.search.calibration.calibration import Calibration
from pipelines.app.demo import unpack
from pipelines.app.search import _copy_name
from tests.pipelines.app.conftest import Command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo, with a calibration whose probability is 0.5 at a score of 0.5."""
    folder = tmp_path_factory.mktemp("search") / "demo"
    unpack(folder)
    (folder / "artifacts" / "index" / "bias.npy").unlink()
    calibration = Calibration(
        -10.0, 20.0, 0.0, 0.2, error=0, false_positive_rate=0, recall=1, queries=100, certain=0.5
    )
    calibration.write(folder / "artifacts" / "index")
    return folder


def test_results_are_found_or_perhaps(run: Path, command: Command) -> None:
    result = command("search", "three red stars on a beach", "--run", run, "-k", 5)
    assert result.exit_code == 0, result.output
    lines = re.findall(r"^ +\d\.  (0\.\d+)  (found|perhaps) ", result.output, re.MULTILINE)
    assert len(lines) == 5
    for score, relevance in lines:
        assert relevance == ("found" if float(score) >= 0.5 else "perhaps")
    assert {relevance for _, relevance in lines} >= {"found"}
    assert "%" not in result.output


def test_a_query_without_a_relevant_image_shows_the_closest(run: Path, command: Command) -> None:
    picture = run / "nothing.png"
    result = command("search", "the stock market", "--run", run, "--picture", picture)
    assert result.exit_code == 0, result.output
    expected = "nothing like it in this collection; these are the closest images\n"
    assert result.output.startswith(
        f"words that the model does not know: stock, market\n{expected}"
    )
    assert "perhaps" not in result.output
    assert picture.exists()
    assert (
        "nothing like it"
        not in command("search", "three red stars on a beach", "--run", run).output
    )
    (image,) = list((run / "images").glob("00003.*"))
    assert "%" not in command("search", image, "--run", run).output


def test_a_search_imports_no_large_package(run: Path) -> None:
    script = (
        "import sys; from pipelines.app import bifocal; "
        f"bifocal(['search', 'a red star', '--run', {str(run)!r}], standalone_mode=False); "
        "assert not {'torch', 'pandas', 'pydantic', 'faiss'} & set(sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr


def test_results_as_json_and_copies(run: Path, command: Command, tmp_path: Path) -> None:
    result = command(
        "search", "a red star", "--run", run, "-k", 2, "--json", "--copy-to", tmp_path / "found"
    )
    answer = json.loads(result.stdout)
    assert (answer["query"], answer["found"], answer["unknown"]) == ("a red star", True, [])
    paths = [Path(hit["path"]) for hit in answer["results"]]
    assert [hit["score"] for hit in answer["results"]] == sorted(
        (h["score"] for h in answer["results"]), reverse=True
    )
    copies = sorted((tmp_path / "found").iterdir())
    assert [copy.name for copy in copies] == [
        f"{n:03}_{path.name}" for n, path in enumerate(paths, start=1)
    ]
    assert copies[0].read_bytes() == paths[0].read_bytes()


@given(
    name=st.text(
        st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]),
        min_size=1,
        max_size=90,
    )
)
def test_a_copy_has_a_name_that_a_file_system_takes(name: str) -> None:
    for number, path in ((7, Path(f"{name}.jpg")), (100, Path(f"{3 * name}.jpg"))):
        copied = _copy_name(number, path)
        assert len(copied.encode()) <= 255
        assert copied.startswith(f"{number:03}_{path.stem[:20]}")
        assert copied.endswith(".jpg")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("caf\udce9", r"'caf\\udce9' is not UTF-8"),
        ("{run}/images", "is a folder: name an image in it"),
        ("..", "is a folder"),
    ],
)
def test_a_query_that_cannot_be_searched_is_one_error(
    query: str, message: str, run: Path, command: Command
) -> None:
    result = command("search", query.format(run=run), "--run", run)
    assert isinstance(result.exception, ValueError | OSError)
    assert re.search(message, str(result.exception))


@pytest.mark.parametrize("query", ["a red star and/or x.png", "stars", "red/blue", "a star.png"])
def test_a_sentence_with_signs_of_a_path_is_a_sentence(
    query: str, run: Path, command: Command
) -> None:
    result = command("search", query, "--run", run, "--json")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["search", "where"])
def test_an_answer_without_a_place_for_its_picture(
    name: str, run: Path, command: Command, tmp_path: Path
) -> None:
    (run / f"{name}.png").unlink(missing_ok=True)
    (run / f"{name}.png").mkdir()  # also root cannot write it
    image = () if name == "search" else (run / "images" / "00003.jpg",)
    try:
        result = command(name, *image, "red elephant", "--run", run)
        assert result.exit_code == 0, result.output
        assert "words that the model does not know: elephant" in result.output
        assert "Is a directory; name a file with --picture" in result.output
        missing = command(
            name, *image, "star", "--run", run, "--picture", tmp_path / "no" / "a.png"
        )
        assert isinstance(missing.exception, OSError)
    finally:
        (run / f"{name}.png").rmdir()


def test_a_terminal_without_the_letters_of_an_answer(run: Path) -> None:
    script = (
        "import sys; from runtime.process import run; from pipelines.app import bifocal; "
        "sys.argv[1:] = ['search', '\u72d7 star \U0001f436', '--run', sys.argv[1], '--json']; "
        "run(bifocal, 'bifocal')"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, run],
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=True,
    )
    assert json.loads(result.stdout)["query"] == "\u72d7 star \U0001f436"


def test_python_knows_what_the_command_knows(run: Path) -> None:
    model = bifocal.load(run)
    hits = model.search("a red elephant", k=2, minus=["blue"])
    assert repr(hits).startswith("<2 of 256 items, unknown words: elephant\n  <0.")
    assert all(str(hit.path) in repr(hits) and len(repr(hit)) < 200 for hit in hits)
    assert "nothing like it" in repr(model.search("the stock market"))
    image = run / "images" / "00003.jpg"
    assert list(model.where(image, "red elephant").unknown) == ["elephant"]
    with pytest.raises(ValueError, match="knows none of the words"):
        model.where(image, "elephant")
    assert model.encode_text([]).shape == model.encode_image([]).shape == (0, 192)
    with Image.open(image) as opened:
        np.testing.assert_array_equal(model.encode_image([opened]), model.encode_image([image]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda model: model.search(5), "query is 5, expected a sentence"),
        (lambda model: model.search("star", filter={}), "unexpected keyword argument 'filter'"),
        (lambda model: model.encode_text("star"), "expected a list of sentences"),
        (lambda model: model.encode_text(["star", None]), "sentence 2 of 2 is None"),
        (lambda model: model.encode_image("a.jpg"), "expected a list of images"),
        (lambda model: model.encode_image([None]), "got <class 'NoneType'>"),
        (lambda model: model.where("a.jpg", None), "sentence 1 of 1 is None"),
    ],
)
def test_a_wrong_argument_in_python_is_named(
    wrong: Callable[[Any], object], message: str, run: Path
) -> None:
    with pytest.raises(TypeError, match=message):
        wrong(bifocal.load(run))
