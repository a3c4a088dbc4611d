"""Default run folders: one name for each source, and an owner that is asked before anything is
replaced."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.app.run_folder import (
    INDEXED,
    RESULTS,
    check_owner,
    run_name,
    write_parameters,
)
from tests.bifocal.datasets.corpora.image_folder.writers import picture
from tests.pipelines.app.conftest import Command


def index_of(source: object) -> dict[str, Any]:
    return {INDEXED: {"directory": str(source)}}


def model_of(source: object) -> dict[str, Any]:
    return {"prepare_dataset": {"corpus": {"name": "ImageFolder", "root": str(source)}}}


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True).filter(lambda name: name.strip(".")))
def test_a_run_has_the_whole_name_of_its_folder(name: str) -> None:
    assert run_name(f"/disk/{name}") == name


def test_only_a_file_has_a_suffix(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").touch()
    assert run_name(str(tmp_path / "photos.zip")) == "photos"
    assert run_name("/disk/2023.05") != run_name("/disk/2023.06")


@pytest.mark.parametrize("held", [index_of, model_of])
@pytest.mark.parametrize("asked", [index_of, model_of])
@pytest.mark.parametrize("is_named", [False, True])
def test_results_of_another_source_or_command_are_not_replaced(
    held: Any, asked: Any, is_named: bool, tmp_path: Path
) -> None:
    ours, theirs, run = tmp_path / "A" / "photos", tmp_path / "C" / "photos", tmp_path / "run"
    ours.mkdir(parents=True)
    assert check_owner(run, held(ours), is_named=is_named) == {}
    write_parameters(run, held(ours))
    for source in (ours, theirs):
        if held is asked and source == ours:
            assert check_owner(run, asked(source), is_named=is_named) == held(ours)
            continue
        with pytest.raises(FileExistsError) as error:
            check_owner(run, asked(source), is_named=is_named)
        for part in (
            str(run),
            str(ours),
            str(source),
            "--folder" if asked is index_of else "--run",
        ):
            assert part in str(error.value)


@pytest.mark.parametrize("kind", [index_of, model_of])
def test_a_named_run_goes_on_with_a_source_whose_images_have_moved(
    kind: Any, tmp_path: Path
) -> None:
    run, table = tmp_path / "run", RESULTS[0 if kind is index_of else 1]
    photos = {f"{number}.jpg": picture(number) for number in range(6)}
    key = "item_id" if kind is index_of else "image_id"
    rows = [{key: n, "sha256": hashlib.sha256(p).hexdigest()} for n, p in photos.items()]
    write_parameters(run, kind(tmp_path / "usb0"))
    (run / table).parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), run / table)
    for name, content in (("usb1", photos), ("other", dict.fromkeys(photos, picture(9)))):
        (tmp_path / name).mkdir()
        for file, image in content.items():
            (tmp_path / name / file).write_bytes(image)
    with pytest.raises(FileExistsError, match=r"usb1 has its images, so go on with --"):
        check_owner(run, kind(tmp_path / "usb1"), is_named=False)
    assert check_owner(run, kind(tmp_path / "usb1"), is_named=True) == kind(tmp_path / "usb0")
    for is_named in (True, False):
        with pytest.raises(FileExistsError, match=r"name another run folder with --\w+$"):
            check_owner(run, kind(tmp_path / "other"), is_named=is_named)
    (tmp_path / "usb0").mkdir()  # it is there again: the copy is another source
    with pytest.raises(FileExistsError):
        check_owner(run, kind(tmp_path / "usb1"), is_named=True)


def test_train_refuses_the_run_of_another_folder(
    photos: Path, recipe: Path, command: Command, tmp_path: Path
) -> None:
    run, settings = tmp_path / "run", ("--recipe", recipe, "--run", tmp_path / "run")
    write_parameters(run, model_of(photos.parent))
    before = (run / "params.yaml").read_bytes()
    result = command("train", photos, *settings)
    assert (
        f"{run} holds a model of {photos.parent}, and this command writes a model of {photos}"
        in str(result.exception)
    )
    assert [path.name for path in run.iterdir()] == ["params.yaml"]
    assert (run / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("content", ["mine", "- a", "3", "index: x", "index: {a: 1}"])
def test_parameters_of_another_form_are_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"params.yaml is damaged \("):
        check_owner(tmp_path, {"index": {"directory": "photos"}}, is_named=True)
