"""``bifocal search`` on the demo's collection: probabilities, and queries that find nothing."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        -10.0, 20.0, 0.0, threshold=0.2, error=0, false_positive_rate=0, recall=1, queries=100
    )
    calibration.write(folder / "artifacts" / "index")
    return folder


def test_results_have_their_probability(run: Path, command: Command) -> None:
    result = command("search", "three red stars on a beach", "--run", run, "-k", 5)
    assert result.exit_code == 0, result.output
    lines = re.findall(r"^ +\d\.  (0\.\d+)  +(\d+)% (relevant|maybe)", result.output, re.MULTILINE)
    assert len(lines) == 5
    for score, percent, relevance in lines:
        assert int(percent) == pytest.approx(
            100 / (1 + 2.718281828 ** (10 - 20 * float(score))), abs=1.1
        )
        assert relevance == ("relevant" if float(score) >= 0.5 else "maybe")
    assert {relevance for *_, relevance in lines} >= {"relevant"}


def test_a_query_without_a_relevant_image_shows_the_closest(run: Path, command: Command) -> None:
    picture = run / "nothing.png"
    result = command("search", "the stock market", "--run", run, "--picture", picture)
    assert result.exit_code == 0, result.output
    expected = "nothing like it in this collection; these are the closest images\n"
    assert result.output.startswith(
        f"words that the model does not know: stock, market\n{expected}"
    )
    assert result.output.count("maybe") == 5
    assert picture.exists()
    assert (
        "nothing like it"
        not in command("search", "three red stars on a beach", "--run", run).output
    )
    (image,) = list((run / "images").glob("00003.*"))
    assert "%" not in command("search", image, "--run", run).output


def test_a_run_without_an_index_is_named(run: Path, command: Command, tmp_path: Path) -> None:
    previous = tmp_path / "previous"
    previous.mkdir()
    shutil.copy(run / "params.yaml", previous)
    result = command("search", "a red star", "--run", previous)
    assert (
        "has no index: its training is not complete, its model is of late interaction, or a "
        "version before" in str(result.exception)
    )


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
