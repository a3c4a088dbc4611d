"""Run an operation with faults at its system calls, in forks of this process, which has imported
everything.

LD_PRELOAD=SHIM python -m tests.rehearsals.faults.matrix FOLDER POINTS OPERATION KEPT

The shim is shim.c, compiled: it kills a fork before a call that changes a file, or fails one of its
writes, or all from one on. At most POINTS points of each kind are spread over the calls. Writes a
JSON object to KEPT, points by kind of fault, after each kind; a second start goes on with the
others.
"""

import ctypes
import gc
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.rehearsals.faults.matrix.operations import Operation, load

COUNT, KILL, FULL, ONCE = range(4)
NAMES = {KILL: "kill at", FULL: "full disk from", ONCE: "full disk only at"}
AT_ONCE = 50
"""Most trials of two commands at once."""
SHIM = ctypes.CDLL(None)


class Trials:
    """Trials of one operation; each begins with a copy of the state before it."""

    def __init__(self, operation: Operation, folder: Path, points: int) -> None:
        self.operation, self.points = operation, points
        self._base, self._work, self._log = folder / "base", folder / "work", folder / "log"
        self._warm(folder / "warm")
        self._end(self._fork(lambda: operation.prepare(self._work)), "prepare")
        self._work.rename(self._base)

    def _warm(self, folder: Path) -> None:
        """Run the operation undisturbed in this process, in another folder: each fork inherits
        imports and caches."""
        self.operation.prepare(folder)
        self.operation.run(folder, 0)
        self.operation.check(folder, {0})
        shutil.rmtree(folder)
        gc.collect()
        gc.freeze()

    def at_calls(self, mode: int) -> int:
        """Run the operation once for each chosen call that is killed, or from which the disk is
        full."""
        calls = list(self._chosen(mode))
        for call in calls:
            self._check(f"{NAMES[mode]} call {call}", {0: self._start(0, mode, call)})
        return len(calls)

    def at_once(self) -> int:
        """Run the operation twice at once, and kill the first at a random call in half of the
        trials."""
        calls, moments, number = (
            max(self._count(KILL), 1),
            random.Random(0),
            min(self.points, AT_ONCE),
        )
        for trial in range(number):
            first = (KILL, moments.randint(1, calls)) if trial % 2 else (COUNT, 0)
            self._check(
                f"two at once, trial {trial}",
                {0: self._start(0, *first), 1: self._start(1, COUNT, 0)},
            )
        return number

    def _chosen(self, mode: int) -> Iterator[int]:
        """Yield the numbers of at most ``points`` calls, evenly spread."""
        count = self._count(mode)
        step = max(count / self.points, 1.0)
        yield from sorted({1 + int(number * step) for number in range(min(count, self.points))})

    def _count(self, mode: int) -> int:
        """Return how many calls an undisturbed run has."""
        file = self._work.with_name("count")
        self._check("count", {0: self._start(0, mode, 2**40, file)})
        return int(file.read_text())

    def _start(self, number: int, mode: int, call: int, counted: Path | None = None) -> int:
        """Start the operation in a fork, on a copy of the state before it if there is none."""
        if not self._work.exists():
            shutil.copytree(self._base, self._work, symlinks=True)

        def run() -> None:
            SHIM.fault_arm(mode, ctypes.c_long(call))
            try:
                self.operation.run(self._work, number)
            finally:
                count = (
                    SHIM.fault_count()
                )  # ends the faults: the report of an error is written to the disk
            if counted is not None:
                counted.write_text(str(count))

        return self._fork(run)

    def _fork(self, function: Callable[[], None]) -> int:
        child = os.fork()
        if child:
            return child
        os.dup2(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
        os.dup2(1, 2)
        code = 0
        try:
            function()
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _check(self, trial: str, children: dict[int, int]) -> None:
        """Wait for the commands, and run the next command."""
        codes = {
            number: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for number, child in children.items()
        }
        if not set(codes.values()) <= {0, 1, -signal.SIGKILL}:
            raise SystemExit(f"{trial}: exit codes {codes}: {self._log.read_text()[-4000:]}")
        acknowledged = {number for number, code in codes.items() if code == 0}
        self._end(self._fork(lambda: self.operation.check(self._work, acknowledged)), trial)
        self._log.unlink(missing_ok=True)
        shutil.rmtree(self._work)

    def _end(self, child: int, trial: str) -> None:
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"{trial}: {self._log.read_text()[-4000:]}")


KINDS: dict[str, Callable[[Trials], int]] = {
    "SIGKILL": lambda trials: trials.at_calls(KILL),
    "ENOSPC from": lambda trials: trials.at_calls(FULL),
    "ENOSPC once": lambda trials: trials.at_calls(ONCE),
    "two at once": Trials.at_once,
}


def main() -> None:
    """Run the operation with each kind of fault, and write the points."""
    folder, points, name, kept = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    found = json.loads(kept.read_text()) if kept.is_file() else {}
    if set(found) < set(KINDS):
        trials = Trials(load(name), folder, points)
        for kind in KINDS:
            if kind not in found:
                found[kind] = KINDS[kind](trials)
                kept.write_text(json.dumps(found))
    gc.unfreeze()  # some libraries print what is left at the exit


if __name__ == "__main__":
    main()
