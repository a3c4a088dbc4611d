"""What does each system give on the embedded scenes?

    python -m benchmarks run quality.leaderboard [--only SMILE BEAN] [--minutes 60] [--trials 1] [--seeds 1] [--jobs 4]

Trains small twins of the systems and writes docs/leaderboard.md. Every system has the same search, of leaderboard.yaml:
the trial with the best validation images is trained with several seeds and measured on the test images. Finished
trainings are kept in runs/leaderboard, and none starts after --minutes: run the command again to continue. Twins share
artifacts with equal parameters and inputs. With --jobs, so many trainings run at once, each on one thread of the CPU,
or on the GPU. Minutes are CPU time of one training.
"""

import argparse
import math
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.common import ROOT, Report
from benchmarks.scene_systems import (
    DIRECTIONS,
    KS,
    SYSTEMS,
    VISUAL,
    Training,
    make,
    make_inputs,
    measures_of,
    values_of,
)
from benchmarks.scenes_page import RECALLS, Tuned, page
from benchmarks.tuning import Search, read_search
from bifocal.datasets import read_dataset
from bifocal.metrics import center_baseline, chance_report

HOME = ROOT / "runs" / "leaderboard"
MAX_MINUTES, MIN_TIMES_CHANCE = 240.0, 10.0
SEARCH = Path(__file__).with_suffix(".yaml")


def tune(name: str, search: Search, settings: Sequence[str], home: Path, end: float) -> Tuned:
    """Try the trials of a system, and train the best one with every seed; stored measures are not computed again, and
    no training starts after the time ``end``.
    """
    tuned = Tuned()
    for training in trials_of(name, search):
        if found := measures_of(training, settings, home, end):
            tuned.validation[training.trial] = found["NDCG" if name == VISUAL else "recall sum"]
    for training in seeds_of(name, search, tuned):
        tuned.chosen = training.trial
        if found := measures_of(training, settings, home, end):
            tuned.seeds[training.seed] = found
    return tuned


def trials_of(name: str, search: Search) -> list[Training]:
    """Return the trainings that choose; CCA has no steps and no loss to tune."""
    return [Training(name, trial, "val", search.seeds[0]) for trial in search.trials[: 1 if name == "CCA" else None]]


def seeds_of(name: str, search: Search, tuned: Tuned) -> list[Training]:
    """Return the trainings of the chosen trial, once all trials are finished; CCA has no seed."""
    if len(tuned.validation) < len(trials_of(name, search)):
        return []
    chosen = max(tuned.validation, key=lambda trial: tuned.validation[trial])
    return [Training(name, chosen, "test", seed) for seed in search.seeds[: 1 if name == "CCA" else None]]


def train_at_once(trainings: Iterable[Training], settings: Sequence[str], home: Path, jobs: int, end: float) -> None:
    """Train in ``jobs`` processes, so that ``tune`` finds the measures; none starts after the time ``end``."""
    trainings = list(trainings)
    for name in dict.fromkeys(training.name for training in trainings):
        # What trainings share must not be made by two of them.
        values = values_of(SYSTEMS[name], settings)
        make_inputs(values, home)
        make("pretrain_sorter", values, {}, home)
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for job in [pool.submit(measures_of, training, settings, home, end) for training in trainings]:
            job.result()


def chance(home: Path, settings: Sequence[str]) -> dict[str, float]:
    """Return the measures of equal scores; for pointing, the accuracy of the image center."""
    test = read_dataset(make("prepare_dataset", values_of(SYSTEMS["CCA"], settings), {}, home)).split("test")
    row_of = {image_id: row for row, image_id in enumerate(test.images["image_id"])}
    report = chance_report(torch.tensor([row_of[image_id] for image_id in test.captions["image_id"]]), KS)
    sizes = test.images.set_index("image_id").loc[test.phrases["image_id"], ["width", "height"]].to_numpy(float)
    recalls = dict(zip(RECALLS, (report[way][f"R@{k}"] for way in DIRECTIONS for k in KS), strict=True))
    center = 100 * float(center_baseline(sizes, list(test.phrases["boxes"])).mean())
    return recalls | {"recall sum": sum(recalls.values()), "pointing": center}


def main() -> None:
    """Tune and train every system, and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    arguments.add_argument("--minutes", type=float, default=MAX_MINUTES, help="start no training after this time")
    arguments.add_argument("--trials", type=int, help="the first trials of the search; 1 is the recipe")
    arguments.add_argument("--seeds", type=int, nargs="+")
    arguments.add_argument("--jobs", type=int, default=1, help="trainings at once")
    arguments.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    arguments.add_argument("--home", type=Path, default=HOME)
    arguments.add_argument("--output", type=Path, default=ROOT / "docs" / "leaderboard.md")
    options = arguments.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}")
    search = read_search(SEARCH)
    search = replace(search, trials=search.trials[: options.trials], seeds=tuple(options.seeds or search.seeds))
    started = time.time()
    place, end = (options.settings, options.home), started + 60 * options.minutes
    if options.jobs > 1:
        train_at_once((one for name in options.only for one in trials_of(name, search)), *place, options.jobs, end)
        tried = {name: tune(name, search, *place, -math.inf) for name in options.only}
        chosen = (one for name, tuned in tried.items() for one in seeds_of(name, search, tuned))
        train_at_once(chosen, *place, options.jobs, end)
    results = {name: tune(name, search, *place, end) for name in options.only}
    floor = chance(options.home, options.settings)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(results, search, floor))
    report = Report("quality.leaderboard")
    worst = [
        measures[f"{way} R@1"] / floor[f"{way} R@1"]
        for tuned in results.values()
        for measures in tuned.seeds.values()
        for way in ("caption", "image")
        if f"{way} R@1" in measures
    ]
    if worst:
        report.add(
            "worst R@1, relative to chance", min(worst), at_least=MIN_TIMES_CHANCE, reference="docs/leaderboard.md"
        )
    report.add("wall time of the last call", (time.time() - started) / 60, "min", at_most=MAX_MINUTES)
    report.write()


if __name__ == "__main__":
    main()
