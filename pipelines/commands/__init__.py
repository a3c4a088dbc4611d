"""Commands of ``python -m pipelines``, one per file."""

import click

from pipelines.commands.canary import canary
from pipelines.commands.clean import clean
from pipelines.commands.compare import compare
from pipelines.commands.compile import compile_command
from pipelines.commands.convert import convert
from pipelines.commands.doctor import doctor
from pipelines.commands.metrics import metrics
from pipelines.commands.monitor import monitor
from pipelines.commands.packages import packages
from pipelines.commands.preflight import preflight
from pipelines.commands.promote import promote
from pipelines.commands.register import register
from pipelines.commands.release import release
from pipelines.commands.render import render
from pipelines.commands.run import run
from pipelines.commands.schedule import schedule


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Render, compile, run, schedule and promote the pipeline that the stages declare."""


for command in (
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
    clean,
    doctor,
    schedule,
    preflight,
):
    main.add_command(command)
