"""A plan in the terminal, as JSON, and as a table of several plans."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bifocal.datasets.published import AUTOMATIC, UNKNOWN
from pipelines.plan.devices import Limits
from pipelines.plan.plan import GB, Plan, PlannedDownload, StagePlan, gb

PAPER_LIMITS = Limits("the limit", host=64 * GB, gpu=24 * GB, disk=10_000 * GB)
MAX_ARTIFACT = 200 * GB
STAGE_OF = {"features": "extract_features", "text": "vectorize_captions"}
BLOCK = re.compile(r"<!-- plans -->.*?<!-- end of plans -->", re.DOTALL)


def tables(plan: Plan, limits: Limits) -> RenderableType:
    """Return the tables of a plan and what exceeds a machine."""
    stages = Table(title=f"Stages on {plan.device}", title_justify="left", box=SIMPLE)
    stages.add_column("stage", no_wrap=True)
    for column in ("artifacts", "host memory", "GPU memory", "steps", "hours"):
        stages.add_column(column, justify="right", no_wrap=column == "artifacts")
    for stage in plan.stages:
        stages.add_row(stage.name, *_cells(stage))
    lines = [
        f"artifacts {gb(plan.artifact_bytes)}, downloads {gb(plan.download_bytes)} and files of unknown size, "
        f"{plan.hours:.1f} h",
        *(f"not predicted: {note}" for note in plan.notes),
        *(f"exceeds {limits.name}: {reason}" for reason in plan.exceeded(limits)),
    ]
    return Group("Downloads", *map(_download_text, plan.downloads), "", stages, *map(Text, lines))


def _download_text(download: PlannedDownload) -> Text:
    file = download.file
    size = "size unknown" if file.size is None else gb(file.size)
    check = "no published checksum" if file.check == UNKNOWN else file.check
    place = "downloaded automatically" if file.place == AUTOMATIC else f"to {download.place}"
    return Text(f"- {file.name}, {file.publisher}, {size}, {place}\n  {file.url}\n  {check}", overflow="fold")


def _cells(stage: StagePlan) -> Sequence[str]:
    artifacts = "\n".join(f"{name} {gb(size)}" for name, size in stage.artifacts.items())
    gpu = "unknown" if stage.gpu is None else gb(stage.gpu) if stage.gpu else "-"
    steps = f"{stage.steps:,}" if stage.steps else "-"
    return artifacts, gb(stage.host), gpu, steps, "unknown" if stage.seconds is None else f"{stage.seconds / 3600:.2f}"


def as_json(plan: Plan, limits: Limits) -> dict[str, Any]:
    """Return a plan as JSON can hold it: sizes in bytes, durations in seconds."""
    return {**asdict(plan), "exceeded": list(plan.exceeded(limits))}


def over_limits(plan: Plan) -> list[str]:
    """Explain which stages exceed 64 GB of host memory or 24 GB of GPU memory, and which artifacts 200 GB."""
    large = [
        f"{stage.name}: artifact {name} of {gb(size)}, the limit is {gb(MAX_ARTIFACT)}"
        for stage in plan.stages
        for name, size in stage.artifacts.items()
        if size > MAX_ARTIFACT
    ]
    return [*plan.exceeded(PAPER_LIMITS), *large]


def overview(plans: Mapping[str, Plan]) -> str:
    """Return a Markdown table with one row per recipe."""
    header = ("recipe", "downloads", "features", "text", "host memory", "GPU memory", "training steps", "hours")
    rows = [(f"`{name}`", *_overview_cells(plan)) for name, plan in plans.items()]
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _overview_cells(plan: Plan) -> Iterable[str]:
    sizes = {name: size for stage in plan.stages for name, size in stage.artifacts.items()}
    stages = {stage.name for stage in plan.stages}
    unknown = any(download.file.size is None for download in plan.downloads)
    gpus = [stage.gpu for stage in plan.stages if stage.gpu is not None]
    yield gb(plan.download_bytes) + (" + unknown" if unknown else "")
    for name in ("features", "text"):
        yield gb(sizes[name]) if name in sizes else "unknown" if STAGE_OF[name] in stages else "-"
    for peaks in ([stage.host for stage in plan.stages], gpus):
        yield gb(max(peaks, default=0))
    yield f"{sum(stage.steps for stage in plan.stages if stage.name.startswith('train')):,}"
    yield f"{plan.hours:.1f}"


def fill_table(page: str, plans: Mapping[str, Plan]) -> str:
    """Return the text of a page with the table of plans replaced.

    Raises:
        ValueError: the page has no place for it.
    """
    if not BLOCK.search(page):
        raise ValueError("the page has no table of plans: write '<!-- plans -->' and '<!-- end of plans -->'")
    return BLOCK.sub(lambda _: f"<!-- plans -->\n\n{overview(plans)}\n<!-- end of plans -->", page)
