"""The files of a folder, without the pictures that this package wrote into it."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.formats.folder import (
    BIN,
    TWICE,
    folder_of_names,
    is_utf8,
    list_folder,
    unused_files,
)

UTF8 = pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8", reason="other letters are refused as a whole"
)


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
def test_pictures_of_runs_and_of_copies_of_the_page_are_left_out(
    tmp_path: Path, written: tuple[str, ...]
) -> None:
    write(
        tmp_path,
        "0.jpg",
        "runs/at the sea/1.jpg",
        "copy of 2.jpg",
        "page/3.jpg",
        "artifacts/4.jpg",
        *written,
    )
    write(tmp_path, ".trash/5.jpg", "runs/.6.jpg", "runs/a.txt", "b.csv")
    images = ["0.jpg", "artifacts/4.jpg", "copy of 2.jpg", "page/3.jpg", "runs/at the sea/1.jpg"]
    assert list_folder(tmp_path).images == images
    assert folder_of_names(tmp_path, named(tmp_path)) == list_folder(tmp_path)
    write(
        tmp_path, "artifacts/collection/items"
    )  # the folder itself is a run, such as a clone after 'make repro'
    assert list_folder(tmp_path).images == [
        name for name in images if not name.startswith(("artifacts", "page"))
    ]
    assert folder_of_names(tmp_path, named(tmp_path)) == list_folder(tmp_path)


@UTF8
@given(names=st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4))
def test_no_bytes_of_a_name_stop_the_list(
    tmp_path_factory: pytest.TempPathFactory, names: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("names")
    write(root, "ok.jpg")
    written = {name for name in names if not {b"/"[0], 0} & {*name} and not name.startswith(b".")}
    for name in written:
        Path(os.fsdecode(os.path.join(os.fsencode(root), name + b".jpg"))).touch()  # noqa: PTH118 - bytes
    found = list_folder(root)
    valid = {name.decode() + ".jpg" for name in written if is_utf8(os.fsdecode(name))} | {"ok.jpg"}
    assert set(found.images) == valid
    assert len(found.left_out) == len(written | {b"ok"}) - len(valid)
    "".join([*found.images, *(entry.entry for entry in found.left_out)]).encode()


@UTF8
def test_names_that_are_not_utf8_and_deep_folders_are_listed(tmp_path: Path) -> None:
    write(
        tmp_path,
        "ok.jpg",
        "a.dng",
        "b.CR2",
        "c",
        "d.dng",
        "ok.txt",
        "x.json",
        "y.caption",
        "/".join(150 * ["d"]) + "/deep.jpg",
    )
    write(tmp_path, os.fsdecode(b"\xe9t\xe9 2003/a.jpg"), os.fsdecode(b"caf\xe9.jpg"))
    found = list_folder(tmp_path)
    assert found.images == ["ok.jpg"]
    deep = "/".join(101 * ["d"])
    utf8 = "its name is not UTF-8: rename it"
    assert [(entry.entry, entry.reason) for entry in found.left_out] == [
        (r"\xe9t\xe9 2003", utf8),
        (r"caf\xe9.jpg", utf8),
        (deep, "in more than 100 folders: move it up"),
    ]
    assert unused_files(found, {"ok.txt"}) == [
        "2 .dng files were not used, such as a.dng: save photographs as JPEG or PNG",
        "1 .cr2 file was not used, such as b.CR2: save photographs as JPEG or PNG",
        "1 other file was not used, such as c",
        *(
            f"1 {suffix} file was not used, such as {name}{suffix}: captions are a table called "
            "captions or metadata, or photo.txt or photo.json beside photo.jpg"
            for name, suffix in (("x", ".json"), ("y", ".caption"))
        ),
    ]
    with pytest.raises(ValueError, match=r"\\xe9t\\xe9 2003: its name is not UTF-8: rename it"):
        list_folder(tmp_path / os.fsdecode(b"\xe9t\xe9 2003"))


def test_own_links_are_followed_once_and_thumbnails_and_bins_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    write(tmp_path, "store/a.jpg", "store/deep/b.jpg")
    write(root, "c.jpg", "@eaDir/c.jpg/THUMB_M.jpg", "x/#recycle/d.jpg", "$RECYCLE.BIN/e.jpg")
    (root / "a.jpg").symlink_to(tmp_path / "store/a.jpg")
    (root / "store").symlink_to(tmp_path / "store")
    (root / "again").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "up").symlink_to(root)
    assert list_folder(root).images == ["c.jpg"]
    found = list_folder(root, follow_links=True)
    assert found.images == ["a.jpg", "again/a.jpg", "again/deep/b.jpg", "c.jpg"]
    reasons = {entry.entry: (entry.reason, entry.intentional) for entry in found.left_out}
    assert reasons["store"] == (TWICE, True)
    assert reasons["again/up"] == (TWICE, True)
    assert {name for name, reason in reasons.items() if reason == (BIN, True)} == {
        "@eaDir", "x/#recycle", "$RECYCLE.BIN",
    }  # fmt: skip
    assert folder_of_names(root, ["c.jpg", "x/#recycle/d.jpg"]).images == ["c.jpg"]
