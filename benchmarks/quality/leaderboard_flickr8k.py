"""What does each system give on photographs?

    python -m benchmarks run quality.leaderboard_flickr8k [--only WSABIE CCA] [--minutes 300]
    [--jobs 2]

Every system of leaderboard_flickr8k.yaml has the same search on images of the training list, and
other images of it choose the epoch and the trial. The best trial is trained with several seeds, and
measured on the dev list. A change of one part of a system has the values chosen for the system.
Writes docs/records/leaderboard_flickr8k.md: then run 'python -m benchmarks render'. Finished
trainings are kept in runs/leaderboard_flickr8k, and none starts after --minutes: run the command
again to continue. A row without a training here keeps its line of the record. Each training has one
thread, and --jobs run at once. The latency measures one caption, from its words to the scores of
all images.
"""

import argparse
import math
import os
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks.common import ROOT, Report
from benchmarks.leaderboard_page import BASELINE, QUICK, gains, photographs
from benchmarks.photograph_systems import inputs_of, measures_of, read_board, read_rows
from benchmarks.tuning import (
    Tuned,
    read_search,
    seeds_of,
    train_at_once,
    tune,
    tune_at_once,
    with_seeds,
)

HOME = ROOT / "runs" / "leaderboard_flickr8k"
MAX_HOURS = 6.0
MIN_GAIN = 2.0
PAPERS_TERMS = (QUICK, "baseline, BEAN's pooling", "baseline, structure term")


def main() -> None:
    """Tune and train every row, and write the table."""
    rows = read_rows()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", choices=[row.name for row in rows], default=[row.name for row in rows]
    )
    parser.add_argument(
        "--minutes", type=float, default=60 * MAX_HOURS, help="start no training after this time"
    )
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "docs" / "records" / "leaderboard_flickr8k.md"
    )
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(
        "MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}"
    )
    board, started = read_board(), time.time()
    search, end = read_search(board["search"]), started + 60 * options.minutes
    measure = partial(measures_of, options.home)
    systems = [row.name for row in rows if row.group == "systems"]
    for row in rows:
        if row.name in options.only:
            inputs_of(dict(row.values), options.home)
    tune_at_once(
        [name for name in systems if name in options.only], search, measure, options.jobs, end
    )
    results = {name: tune(name, search, measure, -math.inf) for name in systems}
    seeds = {name: seeds_of(name, search, tuned) for name, tuned in results.items()}
    for row in rows:
        if row.group == "parts" and (chosen := seeds[row.against]):
            seeds[row.name] = with_seeds(row.name, search, chosen[0].trial)
    train_at_once(
        (one for name in options.only for one in seeds.get(name, [])), measure, options.jobs, end
    )
    for row in rows:
        tuned = results.setdefault(row.name, Tuned())
        for training in seeds.get(row.name, []):
            if found := measure(training, -math.inf):
                tuned.chosen, tuned.seeds[training.seed] = training.trial, found
    record = options.output.read_text() if options.output.is_file() else ""
    text = photographs(rows, results, record)
    options.output.write_text(text)
    print(text)
    report = Report("quality.leaderboard_flickr8k")
    for name, tuned in results.items():
        if tuned.seeds:
            value = statistics.mean(one["recall sum"] for one in tuned.seeds.values())
            report.add(f"recall sum, {name}", value, "%", reference=f"seeds: {len(tuned.seeds)}")
    for name in PAPERS_TERMS:
        if values := gains(results, name, BASELINE):
            label = f"gain over the baseline in recall sum, {name.removeprefix(f'{BASELINE}, ')}"
            report.add(
                label,
                statistics.mean(values),
                "%",
                at_least=MIN_GAIN,
                reference=f"seeds: {len(values)}",
            )
    report.write()


if __name__ == "__main__":
    main()
