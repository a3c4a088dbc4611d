"""Several files change together: all or none, whenever the process is killed."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bifocal.durable import change, complete, reading

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
        if path.is_file()
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
