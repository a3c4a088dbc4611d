"""Rehearse recipes in processes side by side."""

import contextlib
import multiprocessing
import os
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import click
import torch

from runtime.mlflow.connection import connect
from tests.rehearsals.papers.data import WEIGHTS, named_data, write_data
from tests.rehearsals.papers.outcome import Outcome, check
from tests.rehearsals.papers.stages import CHECKOUT, Run, enter
from tests.rehearsals.papers.table import load_table

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def rehearse(name: str, home: Path) -> Outcome:
    """Run a recipe from its data to its registered model; its output is in ``logs/`` below
    ``home``."""
    torch.set_num_threads(1)
    rehearsal, log = load_table()[name], home / "logs" / f"{name}.txt"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            run = Run(f"papers/{name}", rehearsal.set, home)
            run.run()
            baseline = (
                rehearsal.baseline
                and home / CHECKOUT / "runs" / "papers" / rehearsal.baseline / "artifacts"
            )
            folders = run.folders | ({"baseline": baseline / "embedding"} if baseline else {})
            return check(name, rehearsal, folders, run.seconds())
        except (Exception, SystemExit) as error:  # one recipe must not end the others
            traceback.print_exc()
            return Outcome(
                name, rehearsal.headline, problems=[f"{type(error).__name__}: {error}; see {log}"]
            )


def rehearse_all(names: Sequence[str], home: Path, processes: int) -> list[Outcome]:
    """Rehearse recipes side by side; a recipe that reads artifacts of another waits for it."""
    enter(home)
    # Before the processes start: sums in BLAS depend on the number of threads, too.
    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{home / 'mlflow.db'}"
    table = load_table()
    outcomes: list[Outcome] = []
    # Not forked: this process has threads of torch, whose locks a copy would never release.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        # Two processes can neither create its tables nor write the same data at the same time.
        pool.submit(create_store).result()
        data = {
            file
            for name in names
            for file in named_data(Run(f"papers/{name}", table[name].set, home).values)
        }
        longest_first = sorted(data, key=lambda name: (not name.startswith(WEIGHTS), name))
        list(pool.map(write_data, longest_first, [home / "data"] * len(data)))
        waiting, running = list(names), dict[Future[Outcome], str]()
        while waiting or running:
            pending = {*waiting, *running.values()}
            ready = [name for name in waiting if not set(table[name].after) & pending]
            # Not all of them: a row that waits for another one would start after all others.
            for name in ready[: processes - len(running)]:
                running[pool.submit(rehearse, name, home)] = name
                waiting.remove(name)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                del running[future]
                outcomes.append(outcome := future.result())
                click.echo(
                    f"{outcome.recipe}: {outcome.minutes:.1f} min, "
                    f"{'; '.join(outcome.problems) or 'learned'}"
                )
    return sorted(outcomes, key=lambda outcome: outcome.recipe)


def create_store() -> None:
    """Create the tables of the MLflow store."""
    connect().search_experiments()
