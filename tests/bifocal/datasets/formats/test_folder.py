"""The files of a folder, without the pictures that this package wrote into it."""

from pathlib import Path

import pytest

from bifocal.datasets.formats.folder import folder_of_names, list_folder


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def named(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "written",
    [
        ("runs/mine/artifacts/dataset/images/0.jpg", "runs/mine/search.png"),
        ("runs/mine/artifacts/onnx/image_encoder.onnx", "runs/mine/where.png"),
        ("copy/page/gallery.js", "copy/page/icon.png", "copy/data/0/thumbnails/0.jpg"),
    ],
)
def test_pictures_of_runs_and_of_copies_of_the_page_are_left_out(tmp_path: Path, written: tuple[str, ...]) -> None:
    write(tmp_path, "0.jpg", "runs/at the sea/1.jpg", "copy of 2.jpg", "page/3.jpg", "artifacts/4.jpg", *written)
    write(tmp_path, ".trash/5.jpg", "runs/.6.jpg", "runs/a.txt", "b.csv")
    images = ["0.jpg", "artifacts/4.jpg", "copy of 2.jpg", "page/3.jpg", "runs/at the sea/1.jpg"]
    assert list_folder(tmp_path).images == images
    assert folder_of_names(tmp_path, named(tmp_path)) == list_folder(tmp_path)
    write(tmp_path, "artifacts/collection/items")  # the folder itself is a run, such as a clone after 'make repro'
    assert list_folder(tmp_path).images == [name for name in images if not name.startswith(("artifacts", "page"))]
    assert folder_of_names(tmp_path, named(tmp_path)) == list_folder(tmp_path)
