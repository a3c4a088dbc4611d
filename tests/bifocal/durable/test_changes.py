"""Several files change together: all or none, whenever the process is killed."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.durable import change, complete, new_folder, reading, write_text

OLD = {"a/one": "1", "a/two": "2", "b/three": "3", "c": "4"}
NEW = {"a/one": "x", "a/two": "2", "b/four": "y"}
STEPS: dict[str, Callable[..., object]] = {
    **{name: getattr(os, name) for name in ("mkdir", "rename", "replace", "unlink", "rmdir")},
    "fsync": lambda descriptor: None,  # takes milliseconds
}


def contents(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != ".change"
    }


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def change_all(root: Path) -> None:
    """Replace the file a/one and the folder b, and delete c."""
    write(root, {"b.partial/four": "y"})
    with change(root) as changed:
        changed.write(root / "a" / "one", lambda file: file.write_text("x"))
        changed.rename(root / "b.partial", root / "b")
        changed.delete(root / "c")


def in_child(function: Callable[[], None]) -> int:
    """Run a function in a forked process; return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(step: int, function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that is killed before its ``step``-th call that renames, deletes or
    flushes."""

    def run() -> None:
        count = 0

        def counted(call: Callable[..., object]) -> Callable[..., object]:
            def wrapped(*arguments: object, **named: object) -> object:
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **named)

            return wrapped

        for name, call in STEPS.items():
            setattr(os, name, counted(call))
        function()
        os._exit(0)

    return run


def test_a_kill_at_any_step_leaves_the_old_or_the_new_files(tmp_path: Path) -> None:
    states, step, code = [], 0, -1
    while code:
        step += 1
        root = tmp_path / str(step)
        write(root, OLD)
        code = in_child(killed_at(step, lambda root=root: change_all(root)))  # type: ignore[misc]
        complete(root)
        found = contents(root)
        states.append(found == NEW)
        if found != NEW:
            assert {name: text for name, text in found.items() if name in OLD} == OLD
        change_all(root)
        assert contents(root) == NEW
        assert not (root / ".change").exists()
    assert len(states) > 10
    assert states == sorted(states)  # once it is final, it stays
    assert states[0] is False
    assert states[-2] is True


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    with pytest.raises(FileNotFoundError), change(tmp_path) as changed:
        changed.write(tmp_path / "c", lambda file: (tmp_path / "missing").rename(file))
    assert contents(tmp_path) == OLD
    assert not (tmp_path / ".change").exists()


def test_readers_and_changes_wait_for_each_other(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    seen = []

    def read() -> None:
        with reading(tmp_path, tmp_path):
            seen.append((tmp_path / "c").read_text())

    with change(tmp_path) as changed:
        reader = threading.Thread(target=read)
        reader.start()
        changed.write(tmp_path / "c", lambda file: file.write_text("new"))
        reader.join(0.1)
        assert not seen
    reader.join()
    assert seen == ["new"]


def test_a_reader_completes_the_change_of_a_killed_process(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    step = 1
    while not (tmp_path / ".change" / "journal.json").is_file():
        assert in_child(killed_at(step, lambda: change_all(tmp_path))) == -signal.SIGKILL
        step += 1
    with reading(tmp_path):
        assert contents(tmp_path) == NEW


NAMES = ("../photos", "a", "a/../../photos", "{root}/../photos", ".change/0", "b.partial")


@given(
    renamed=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=3),
    deleted=st.lists(st.sampled_from(NAMES), max_size=3),
    mark=st.sampled_from([None, [], [0, 0], "own", "missing", "no key", "no object", "no JSON"]),
    action=st.sampled_from(["complete", "reading", "change", "new_folder"]),
)
def test_a_journal_that_was_not_written_here_does_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    renamed: object,
    deleted: object,
    mark: object,
    action: str,
) -> None:
    world = tmp_path_factory.mktemp("world")
    root = world / "root"
    write(world, {"photos/1.jpg": "mine"})
    write(root, {**OLD, ".change/0": "other", ".change/mark": ""})
    if mark == "own":  # of the archive that was unpacked here
        found = (root / ".change" / "mark").stat()
        mark = [found.st_ino, found.st_ctime_ns]
        shutil.copy2(root / ".change" / "mark", root / "copy")
        (root / "copy").replace(root / ".change" / "mark")
    elif mark == "missing":
        mark = None
        (root / ".change" / "mark").unlink()
    journal = {"renamed": renamed, "deleted": deleted, "mark": mark}
    if mark == "no key":
        del journal["mark"]
    text = json.dumps([journal] if mark == "no object" else journal).replace("{root}", str(root))
    text = text[: -1 if mark == "no JSON" else None]
    (root / ".change" / "journal.json").write_text(text)
    before = contents(world)
    actions: dict[str, Callable[[], object]] = {
        "complete": lambda: complete(root),
        "reading": lambda: reading(root).__enter__(),
        "change": lambda: change(root).__enter__(),
        "new_folder": lambda: new_folder(root / "new").__enter__(),
    }
    with pytest.raises(ValueError, match="was not written here"):
        actions[action]()
    assert contents(world) == before


def test_a_copied_change_is_not_completed_elsewhere(tmp_path: Path) -> None:
    root, step = tmp_path / "root", 1
    write(root, OLD)
    while not (root / ".change" / "journal.json").is_file():
        assert in_child(killed_at(step, lambda: change_all(root))) == -signal.SIGKILL
        step += 1
    shutil.copytree(root, tmp_path / "copy")
    with pytest.raises(ValueError, match="was not written here"):
        complete(tmp_path / "copy")
    complete(root)
    assert contents(root) == NEW


@pytest.mark.parametrize("name", [".change", "folder.partial", "file.new"])
@pytest.mark.parametrize("kind", ["folder", "file", "nothing"])
def test_links_at_the_names_of_working_files_are_refused(
    tmp_path: Path, name: str, kind: str
) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    write(home, {"photos/1.jpg": "mine", "bashrc": "# mine"})
    root.mkdir()
    (root / name).symlink_to(
        {"folder": "../home/photos", "file": "../home/bashrc", "nothing": "../home/new"}[kind]
    )
    actions: list[Callable[[], object]] = [
        lambda: change(root).__enter__(),
        lambda: new_folder(root / "folder").__enter__(),
        lambda: write_text(root / "file", "theirs"),
    ]
    refused = [".change", "folder.partial", "file.new"].index(name)
    with pytest.raises(ValueError, match="is a link, or belongs to another user"):
        actions[refused]()
    assert contents(home) == {"photos/1.jpg": "mine", "bashrc": "# mine"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_working_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    for name in (".change", "folder.partial"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, 12345, 12345)
    with pytest.raises(ValueError, match="belongs to another user"), change(tmp_path):
        pass
    with (
        pytest.raises(ValueError, match="belongs to another user"),
        new_folder(tmp_path / "folder"),
    ):
        pass
