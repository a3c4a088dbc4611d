"""A plan in the terminal, and as JSON."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.plan.make import Plan, StagePlan
from pipelines.plan.measure import Estimate

GB = 1e9


def tables(plan: Plan) -> RenderableType:
    """Return the table of a plan, the files to fetch, and what this machine lacks."""
    stages = Table(title=f"Measured on samples of {_list(plan.sampled)} images, for {plan.size.images:,} images and "
                   f"{plan.size.captions:,} captions", title_justify="left", box=SIMPLE)  # fmt: skip
    stages.add_column("stage", no_wrap=True)
    for column in ("time", "memory", "GPU", "disk"):
        stages.add_column(column, justify="right", no_wrap=True)
    for stage in plan.stages:
        stages.add_row(stage.name, *_cells(stage))
    stages.add_row("all", duration(plan.seconds), "", "", size(plan.disk))
    lines = [f"to fetch: {file['name']}, {file['url']}, to {file['folder']}{_details(file)}" for file in plan.files]
    lines += [f"stand-in: {note}" for note in plan.notes]
    lines += [f"not measured: {stage.name}: {stage.problem}" for stage in plan.stages if stage.problem]
    lines += [f"too little: {reason}" for reason in lacks(plan)]
    return Group(stages, *(Text(line, overflow="fold") for line in lines))


def lacks(plan: Plan) -> Iterator[str]:
    """Yield what the plan needs and this machine does not have."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = shutil.disk_usage(Path()).free
    for stage in plan.stages:
        if stage.memory > memory:
            yield f"{stage.name} needs {size(stage.memory)} of memory, this machine has {size(memory)}"
    if plan.disk > free:
        yield f"the artifacts need {size(plan.disk)} of disk, {size(free)} are free here"


def as_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON can hold it: durations in seconds, sizes in bytes."""
    return {**asdict(plan), "lacks": list(lacks(plan))}


def read_stages(text: str) -> list[StagePlan]:
    """Return the stages of a plan in JSON."""
    try:
        stages = json.loads(text)["stages"]
        return [
            StagePlan(**{**stage, "seconds": stage["seconds"] and Estimate(**stage["seconds"])}) for stage in stages
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a plan: expected the output of 'python -m pipelines plan --json' ({error!r})") from error


def size(value: float) -> str:
    """Return bytes as text."""
    return f"{value / GB:.1f} GB" if value >= GB / 10 else f"{value / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Return seconds as text."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _cells(stage: StagePlan) -> tuple[str, ...]:
    if stage.seconds is None:
        return ("unknown",) * 4
    time = f"{duration(stage.seconds.value)} ± {duration(stage.seconds.error)}"
    return time, size(stage.memory), size(stage.gpu) if stage.gpu else "-", size(stage.disk)


def _details(file: Any) -> str:
    details = [size(file["size"])] if "size" in file else []
    return "".join(f", {text}" for text in [*details, *([f"sha256 {file['sha256']}"] if "sha256" in file else [])])


def _list(numbers: Any) -> str:
    *first, last = (str(number) for number in numbers)
    return f"{', '.join(first)} and {last}"
