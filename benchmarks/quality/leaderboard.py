"""What does each system give on drawn scenes?

    python -m benchmarks run quality.leaderboard [--only WSABIE CCA] [--minutes 60] [--trials 1]
    [--seeds 1] [--jobs 4]

Trains small twins of the systems and writes docs/records/leaderboard.md: then run 'python -m
benchmarks render'. Every system has the same search, of leaderboard.yaml: the trial with the best
validation images is trained with several seeds and measured on the test images. Finished trainings
are kept in runs/leaderboard, and none starts after --minutes: run the command again to continue.
Twins share artifacts with equal parameters and inputs. With --jobs, so many trainings run at once,
each on one thread of the CPU, or on the GPU. Minutes are CPU time of one training.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import yaml

from benchmarks.common import ROOT, Report
from benchmarks.leaderboard_page import RECALLS, scenes
from benchmarks.scene_systems import (
    DIRECTIONS,
    KS,
    SYSTEMS,
    make,
    make_inputs,
    measures_of,
    recipe_of,
    values_of,
)
from benchmarks.tuning import CLOSED_FORM, read_search, tune, tune_at_once
from bifocal.datasets import read_dataset
from bifocal.metrics import center_baseline, chance_report

HOME = ROOT / "runs" / "leaderboard"
MAX_MINUTES, MIN_TIMES_CHANCE = 240.0, 10.0
SEARCH = Path(__file__).with_suffix(".yaml")


def chance(home: Path, settings: Sequence[str]) -> dict[str, float]:
    """Return the measures of equal scores; for pointing, the accuracy of the image center."""
    test = read_dataset(
        make("prepare_dataset", values_of(SYSTEMS[CLOSED_FORM], settings), {}, home)
    ).split("test")
    report = chance_report(torch.tensor(test.image_rows(test.captions["image_id"])), KS)
    sizes = (
        test.images.set_index("image_id")
        .loc[test.phrases["image_id"], ["width", "height"]]
        .to_numpy(float)
    )
    recalls = dict(
        zip(RECALLS, (report[way][f"R@{k}"] for way in DIRECTIONS for k in KS), strict=True)
    )
    center = 100 * float(center_baseline(sizes, list(test.phrases["boxes"])).mean())
    return recalls | {"recall sum": sum(recalls.values()), "pointing": center}


def main() -> None:
    """Tune and train every system, and write the table."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--only", nargs="*", default=list(SYSTEMS), help="systems, and recipes as further rows"
    )
    arguments.add_argument(
        "--minutes", type=float, default=MAX_MINUTES, help="start no training after this time"
    )
    arguments.add_argument(
        "--trials", type=int, help="the first trials of the search; 1 is the recipe"
    )
    arguments.add_argument("--seeds", type=int, nargs="+")
    arguments.add_argument("--jobs", type=int, default=1, help="trainings at once")
    arguments.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE"
    )
    arguments.add_argument("--home", type=Path, default=HOME)
    arguments.add_argument(
        "--output", type=Path, default=ROOT / "docs" / "records" / "leaderboard.md"
    )
    options = arguments.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(
        "MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}"
    )
    file = yaml.safe_load(SEARCH.read_text())
    search = read_search(file)
    search = replace(
        search, trials=options.trials or search.trials, seeds=tuple(options.seeds or search.seeds)
    )
    differs = {
        name: file["differs"].get(name, "a recipe of yours")
        for name in options.only
        if recipe_of(name)
    }
    started = time.time()
    end, measure = (
        started + 60 * options.minutes,
        partial(measures_of, options.settings, options.home),
    )
    if options.jobs > 1:
        for name in options.only:
            make_inputs(values_of(recipe_of(name), options.settings), options.home)
        tune_at_once(options.only, search, measure, options.jobs, end)
    results = {name: tune(name, search, measure, end) for name in options.only}
    floor = chance(options.home, options.settings)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(scenes(results, differs, floor))
    report = Report("quality.leaderboard")
    worst = [
        measures[f"{way} R@1"] / floor[f"{way} R@1"]
        for tuned in results.values()
        for measures in tuned.seeds.values()
        for way in ("caption", "image")
        if f"{way} R@1" in measures
    ]
    if worst:
        report.add("worst R@1, relative to chance", min(worst), at_least=MIN_TIMES_CHANCE)
    report.add(
        "wall time of the last call", (time.time() - started) / 60, "min", at_most=MAX_MINUTES
    )
    report.write()


if __name__ == "__main__":
    main()
