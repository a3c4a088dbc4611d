"""What does each system give on photographs?

    python -m benchmarks run quality.leaderboard_flickr8k [--plan] [--only WSABIE CCA]
    [--minutes 300] [--jobs 2]

Every system of leaderboard_flickr8k.yaml has the same search and the same number of steps. Images
of the training list train, and other images of it choose the round and the trial; the dev list is
only measured. A change of one part has the values chosen for its system. Writes
docs/records/leaderboard_flickr8k.md: then run 'python -m benchmarks render'.

Finished trainings are kept in runs/leaderboard_flickr8k, and none starts after --minutes: run the
command again to continue. A row without a training here keeps its line of a record of the same
protocol. Each training has one thread, and --jobs rows run at once. --plan measures some steps of
each row, and prints the core hours of the board. The latency measures one caption, from its words
to the scores of all images.
"""

import argparse
import math
import os
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.common import ROOT, Report
from benchmarks.halving import Halving, IsHopeless, expected_rounds, last_is_best
from benchmarks.leaderboard_page import BASELINE, QUICK, gains, photographs
from benchmarks.photograph_rows import ROWS_FILE, Board, inputs_of, read_board
from benchmarks.photograph_systems import plan, reported, train
from benchmarks.tuning import VALIDATION, Training, Trial, Tuned, best_of, with_seeds
from runtime.process import keep_freed_memory

HOME = ROOT / "runs" / "leaderboard_flickr8k"
MAX_HOURS, LARGER = 8.0, 1.1
"""Core hours of the whole board, and mean factor of a batch in the search."""
MIN_GAIN = 2.0
PAPERS_TERMS = (QUICK, "baseline, BEAN's pooling", "baseline, structure term")
DEV = 4
"""Times a validation that the measures on the dev list take, at most: twice the images."""


class UnfinishedError(Exception):
    """A training is missing, and its time is over."""


def search(board: Board, home: Path, name: str, end: float) -> Tuned:
    """Return the search of a system as far as it is finished; no training starts after the time
    ``end``."""
    tuned, halving = Tuned(), Halving(board.budget)

    def curve(trial: Trial, is_hopeless: IsHopeless) -> list[float]:
        training = Training(name, trial, VALIDATION, board.search.seeds[0])
        found = train(board, home, training, is_hopeless, end)
        if found is None:
            raise UnfinishedError
        return list(found["curve"])

    def run(trials: Iterable[Trial]) -> None:
        for trial in trials:
            measures = halving.run(partial(curve, trial))
            tuned.tried += 1
            if len(measures) == whole:
                tuned.validation[trial] = max(measures)

    phases = board.row(name).values["train_embedding"]["phases"]
    whole = board.budget.rounds if phases else 1
    try:
        run(board.search.first(name))
        best = best_of(tuned.validation, tuned)
        run(board.search.second(name, best))
    except UnfinishedError:
        return tuned
    tuned.chosen = best_of(tuned.validation, tuned)
    tuned.edges = board.search.left_edges(name, best, tuned.chosen)
    return tuned


def run_row(file: Path, home: Path, name: str, end: float) -> Tuned:
    """Search the values of a system, or take those of the system that a part changes; train and
    measure the chosen ones with every seed."""
    board = read_board(file)
    row = board.row(name)
    tuned = search(board, home, row.chosen_for, end if row.group == "systems" else -math.inf)
    if row.group == "parts":
        tuned = Tuned(chosen=tuned.chosen)
    if tuned.chosen is None:
        return tuned
    for one in with_seeds(name, board.search, tuned.chosen):
        training = Training(name, one.trial, VALIDATION, one.seed)
        found = train(board, home, training, end=end)
        if found and (measures := reported(board, home, training, found["minutes"], end)):
            tuned.seeds[one.seed] = measures
            tuned.unfinished += last_is_best(found["curve"])
    return tuned


def print_plan(board: Board, home: Path, names: Iterable[str]) -> float:
    """Print the CPU minutes of each row, and return the core hours of all, without features and
    texts."""
    budget, seeds = board.budget, len(board.search.seeds)
    trials = board.search.trials + -(-board.search.trials // 4)
    searched = expected_rounds(trials, budget)
    print(
        f"{board.search.trials} trials and a quarter at an edge: about {searched:.0f} rounds of "
        f"{budget.steps_per_round} steps, then {seeds - 1} trainings of {budget.rounds} rounds"
    )
    total = 0.0
    for name in names:
        row = board.row(name)
        cost = plan(board, home, name)
        is_system = row.group == "systems"
        closed = not row.values["train_embedding"]["phases"]
        rounds = searched * is_system + budget.rounds * (seeds - is_system)
        count = trials * is_system + (0 if closed else seeds - is_system)
        per_round = LARGER * budget.steps_per_round * cost["step"] + cost["validation"]
        seconds = count * cost["start"] + rounds * per_round + DEV * seeds * cost["validation"]
        total += seconds / 3600
        print(
            f"{name:<40} {cost['step']:7.3f} s a step {cost['validation']:7.2f} s a validation "
            f"{seconds / 60:7.1f} min",
            flush=True,
        )
    print(f"{'all':<40} {total:.1f} core hours, at most {MAX_HOURS:g}")
    return total


def main() -> None:
    """Tune and train every row, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", metavar="ROW")
    parser.add_argument(
        "--plan", action="store_true", help="print the core hours and train nothing"
    )
    parser.add_argument(
        "--minutes", type=float, default=60 * MAX_HOURS, help="start no training after this time"
    )
    parser.add_argument("--jobs", type=int, default=2, help="rows at once")
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument("--rows", type=Path, default=ROWS_FILE, help="file of the rows")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "docs" / "records" / "leaderboard_flickr8k.md"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(
        "MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}"
    )
    board, end = read_board(options.rows), time.time() + 60 * options.minutes
    names = [row.name for row in board.rows]
    if unknown := {*(options.only or ())} - {*names}:
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    only = [name for name in names if name in (options.only or names)]
    for name in only:
        inputs_of(board, board.row(name), options.home)
    torch.set_num_threads(1)
    if options.plan:
        print_plan(board, options.home, only)
        return
    run = partial(run_row, options.rows, options.home)
    for group in ("systems", "parts"):
        run_at_once(
            [name for name in only if board.row(name).group == group], run, options.jobs, end
        )
    results = {name: run(name, -math.inf) for name in names}
    record = options.output.read_text() if options.output.is_file() else ""
    text = photographs(board.protocol, board.rows, results, record)
    options.output.write_text(text)
    print(text)
    report = Report("quality.leaderboard_flickr8k", board.protocol)
    for name, tuned in results.items():
        if tuned.seeds:
            value = statistics.mean(one["recall sum"] for one in tuned.seeds.values())
            report.add(f"recall sum, {name}", value, "%", reference=f"seeds: {len(tuned.seeds)}")
    for name in PAPERS_TERMS:
        if {name, BASELINE} <= {*names} and (values := gains(results, name, BASELINE)):
            label = f"gain over the baseline in recall sum, {name.removeprefix(f'{BASELINE}, ')}"
            report.add(
                label,
                statistics.mean(values),
                "%",
                at_least=MIN_GAIN,
                reference=f"seeds: {len(values)}",
            )
    report.write(options.results)


def run_at_once(names: Iterable[str], run: partial[Tuned], jobs: int, end: float) -> None:
    """Run rows with ``jobs`` processes of one thread each, the first ones first."""
    # A process for each row, which returns split memory: one grew to 8 GB in 16 trainings of BEAN.
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), _begin_process, max_tasks_per_child=1
    ) as pool:
        for job in [pool.submit(run, name, end) for name in names]:
            job.result()


def _begin_process() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


if __name__ == "__main__":
    main()
