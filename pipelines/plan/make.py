"""Plan of a pipeline: its stages measured on samples, and scaled to the whole corpus."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bifocal.datasets import read_dataset
from components.catalog import configurable_components, pipeline_components
from pipelines.plan.corpus import CorpusSize, corpus_size, files_to_fetch
from pipelines.plan.measure import Estimate, Processes, Usage, estimate
from pipelines.plan.sample import least_images, sample, stand_ins, work
from runtime import parameters

RUNS = ((0.5, 1), (0.75, 2), (1.0, 2))
"""Fraction of the sample's images, and epochs of a training, of each run."""


@dataclass(frozen=True)
class StagePlan:
    """Resources that a stage will need; ``problem`` says why they are unknown."""

    name: str
    seconds: Estimate | None = None
    memory: float = 0.0
    gpu: float = 0.0
    disk: float = 0.0
    problem: str = ""
    shardable: bool = False


@dataclass(frozen=True)
class Plan:
    """Resources that a pipeline will need, with the files to fetch and the stand-ins (``notes``).

    ``sampled`` has the images of each run; the time of each stage includes ``start``, the seconds until a process runs.
    """

    size: CorpusSize
    sampled: Sequence[int]
    stages: Sequence[StagePlan]
    files: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    start: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all measured stages."""
        return sum(stage.seconds.value for stage in self.stages if stage.seconds is not None)

    @property
    def disk(self) -> float:
        """Bytes of all artifacts."""
        return sum(stage.disk for stage in self.stages)


@dataclass(frozen=True)
class Run:
    """One run on a sample: parameters, counts of its dataset, and the usage of each stage or why it failed."""

    values: Mapping[str, Any]
    images: int
    captions: int
    stages: Mapping[str, Usage | str]


def make_plan(
    values: Mapping[str, Any],
    images: int,
    folder: Path,
    report: Callable[[str], None],
    stages: Sequence[str] | None = None,
) -> Plan:
    """Run stages on three samples of up to ``images`` images below ``folder``; return their plan.

    ``stages`` are by default all stages without side effects; ``report`` gets a line before each run of a stage.
    """
    size = corpus_size(values)
    replaced, notes = stand_ins(values, size, folder)
    names = stages or [stage.name for stage in pipeline_components(values["pipeline"]) if not stage.side_effects]
    processes = Processes(folder / "mlflow.db")
    start = processes.start_seconds()
    images = min(size.images, max(images, int(least_images(values) / RUNS[0][0])))
    runs = run_samples(processes, names, replaced, size, images, folder, report)
    planned = [_stage_plan(name, values, size, runs, start) for name in names]
    return Plan(size, [run.images for run in runs], planned, list(files_to_fetch(values)), notes, start)


def run_samples(
    processes: Processes,
    names: Sequence[str],
    values: Mapping[str, Any],
    size: CorpusSize,
    images: int,
    folder: Path,
    report: Callable[[str], None],
) -> list[Run]:
    """Run stages on samples of up to ``images`` images, each below a folder of its own."""
    runs = []
    for number, (fraction, epochs) in enumerate(RUNS, start=1):
        part = folder / str(number)
        part.mkdir()
        reduced = sample(values, size, round(fraction * images), epochs)
        usages: dict[str, Usage | str] = {}
        for name in names:
            report(f"sample {number} of {len(RUNS)}: {name}")
            try:
                usages[name] = processes.run(name, reduced, part)
            except Exception as error:  # the plan tells what it could not measure
                usages[name] = next(iter(str(error).splitlines()), repr(error))
        failure = usages["prepare_dataset"]
        if isinstance(failure, str):
            raise ValueError(f"prepare_dataset cannot read a sample of the corpus: {failure}")
        dataset = read_dataset(part / "dataset")
        runs.append(Run(reduced, len(dataset.images), len(dataset.captions), usages))
    return runs


def _stage_plan(name: str, values: Mapping[str, Any], size: CorpusSize, runs: Sequence[Run], start: float) -> StagePlan:
    usages = [run.stages[name] for run in runs]
    for usage in usages:
        if isinstance(usage, str):
            return StagePlan(name, problem=usage)
    measured = [usage for usage in usages if isinstance(usage, Usage)]
    done = [work(name, run.values, run.images, run.captions) for run in runs]
    seconds = estimate(done, [usage.seconds for usage in measured], work(name, values, size.images, size.captions))
    by_captions = name == "vectorize_captions"
    counts = [run.captions if by_captions else run.images for run in runs]
    whole = size.captions if by_captions else size.images

    memory, gpu, disk = (
        estimate(counts, [getattr(usage, resource) for usage in measured], whole).value
        for resource in ("memory", "gpu", "disk")
    )
    stage, section = configurable_components()[name], {"seed": values["seed"], name: values[name]}
    shardable = stage.merge_step is not None and parameters.validate(section, [stage], parts=False)[name].shardable
    return StagePlan(name, Estimate(seconds.value + start, seconds.error), memory, gpu, disk, shardable=shardable)
