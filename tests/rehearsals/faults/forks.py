"""Kill stages at random moments, each as a fork of one process: imports take seconds, and a fork
takes none.

python -m tests.rehearsals.faults.forks PARAMS FOLDER KILLS STAGE ...

Prints the number of kills of each stage as JSON. A stage is killed KILLS times, after a random part
of the work of an undisturbed run, and started again at once; then it runs to its end, and its
artifacts are compared.
"""

import json
import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import click

from tests.rehearsals.faults.checkout import digests
from tests.rehearsals.faults.processes import work_seconds
from tests.rehearsals.faults.stages import STAGES, link_inputs, run_stage


def main() -> None:
    """Run the stages undisturbed, and then with kills."""
    params, folder, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    stages, moments, counts = sys.argv[4:], random.Random(0), {}
    for module in (*(f"components.{stage}.run" for stage in stages), "runtime.job"):
        import_module(module)
    for stage in stages:
        work = start(stage, params, folder / "expected", None)
        # Every stage gets the inputs of the undisturbed run: one that differs is the fault of its
        # own stage.
        link_inputs(stage, folder / "expected", folder / stage)
        limits = [moments.uniform(0.0, abs(work)) for _ in range(kills)]
        counts[stage] = sum(start(stage, params, folder / stage, limit) > 0 for limit in limits)
        start(stage, params, folder / stage, None)
        names = STAGES[stage].outputs
        assert digests([folder / stage / n for n in names]) == digests(
            [folder / "expected" / n for n in names]
        ), stage
        assert not list((folder / stage).glob("*.partial")), stage
    click.echo(json.dumps(counts))


def start(stage: str, params: Path, artifacts: Path, limit: float | None) -> float:
    """Run a stage in a fork, and kill it after ``limit`` seconds of work; return its work, 0 if it
    ended before."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code, output = run_stage(stage, params, artifacts)
        if code:
            sys.stderr.write(output)
        sys.stderr.flush()
        os._exit(code)
    work = 0.0
    while True:
        # WNOWAIT: the ended child keeps its times until they are read.
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        work = work_seconds(child)
        if ended is not None or (limit is not None and work >= limit):
            break
        time.sleep(0.02)
    if ended is None:
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"{stage} failed")
    return work if limit is None or code else 0.0


if __name__ == "__main__":
    main()
