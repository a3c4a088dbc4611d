"""Single files and folders are replaced completely or not at all."""

import os
import stat
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from bifocal.durable import append_line, change, new_folder, replace_file, write_once


def test_a_failed_write_leaves_the_previous_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        replace_file(file, fail)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}


def test_two_writers_write_one_after_the_other(tmp_path: Path) -> None:
    file, started = tmp_path / "file", threading.Barrier(8)

    def write(letter: str, path: Path) -> None:
        with path.open("w", buffering=1) as opened:
            for _ in range(200):
                opened.write(f"{letter}\n")

    def run(letter: str) -> None:
        started.wait()
        for _ in range(5):
            replace_file(file, partial(write, letter))
            assert len(set(file.read_text().split())) == 1

    threads = [threading.Thread(target=run, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.read_text().split()) == 200
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_lines_of_several_writers_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    threads = [
        threading.Thread(target=append_line, args=(file, str(number) * 50)) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read_text().splitlines()) == [str(number) * 50 for number in range(8)]


def test_a_folder_is_new_complete_and_only_replaced_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    with pytest.raises(NotADirectoryError), new_folder(folder) as written:
        (written / "file").touch() or (written / "file").rmdir()  # type: ignore[func-returns-value]
    assert not any(folder.parent.iterdir())
    folder.with_name("folder.partial").mkdir()
    (folder.with_name("folder.partial") / "of a killed process").touch()
    with new_folder(folder) as written:
        (written / "one").write_text("1")
    with (
        pytest.raises(FileExistsError, match="exists already: name a new folder"),
        new_folder(folder),
    ):
        pass
    write_once(folder, lambda path: pytest.fail(str(path)))
    assert [path.name for path in folder.iterdir()] == ["one"]
    with new_folder(folder, replace=True) as written:
        (written / "two").touch()
    assert [path.name for path in folder.parent.rglob("*")] == ["folder", "two"]


def test_an_error_of_the_writer_is_not_taken_for_another_process(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        write_once(tmp_path / "folder", lambda path: (path / "a").mkdir() or (path / "a").mkdir())  # type: ignore[func-returns-value]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
def test_files_have_the_mode_of_the_umask_whoever_writes_them(mask: int, tmp_path: Path) -> None:
    def write(file: Path) -> None:
        save_file({"a": np.zeros(1)}, file)  # by a rename of a file that only its owner can read

    previous = os.umask(mask)
    try:
        plain, private = tmp_path / "plain", tmp_path / "private"
        plain.touch()
        write(private)
        replace_file(tmp_path / "file", write)
        write_once(tmp_path / "once", lambda folder: write(folder / "file"))
        with change(tmp_path) as changed:
            changed.write(tmp_path / "changed", write)
        with new_folder(tmp_path / "new") as folder:
            write(folder / "file")
            (folder / "program").write_text("")
            (folder / "program").chmod(0o755)
            (folder / "link").symlink_to(private)
            (folder / "same").hardlink_to(private)
    finally:
        os.umask(previous)
    modes = {
        path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    kept = {name: modes.pop(name) for name in ("private", "new/link", "new/same", "new/program")}
    program = kept.pop("new/program")
    assert program == 0o755 | modes["plain"]
    assert set(kept.values()) == {kept["private"]}  # the files of others stay as they are
    assert set(modes.values()) == {modes["plain"]}
