"""Commands of ``python -m pipelines``."""

import click

from pipelines.commands.canary import canary
from pipelines.commands.cluster import compile_command, preflight, run, schedule
from pipelines.commands.convert import convert
from pipelines.commands.monitor import monitor
from pipelines.commands.project import new
from pipelines.commands.registry import clean, promote, register, release
from pipelines.commands.render import packages, render
from pipelines.commands.results import compare, metrics
from pipelines.commands.status import status
from pipelines.doctor import doctor


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Render, compile, run, schedule and promote the pipeline that the stages declare."""


for command in (
    new,
    render,
    packages,
    register,
    release,
    metrics,
    compare,
    compile_command,
    convert,
    run,
    promote,
    canary,
    monitor,
    status,
    clean,
    doctor,
    schedule,
    preflight,
):
    main.add_command(command)
