"""Plan of a recipe against a whole run of it, as a Markdown table.

``python -m tests.rehearsals.plan recipes/scenes/smile.yaml [--set KEY=VALUE]``: run it on a quiet machine.
"""

import tempfile
from pathlib import Path

import click

from components.catalog import pipeline_components
from pipelines.commands import options
from pipelines.commands.compile import load_parameters
from pipelines.plan.make import make_plan
from pipelines.plan.measure import Processes
from pipelines.plan.show import duration, size


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path, exists=True))
@options.settings
@click.option("--sample", "images", default=300, show_default=True, help="Images of the largest sample.")
def main(recipe: Path, settings: tuple[str, ...], images: int) -> None:
    """Print predicted and measured time, memory and disk of each stage of RECIPE."""
    values = load_parameters([recipe], settings)
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(values, images, Path(folder), lambda line: click.echo(line, err=True))
    click.echo("| stage | time | real | memory | real | disk | real |")
    click.echo(f"| --- |{' ---: |' * 6}")
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder) / "mlflow.db")
        for stage in [stage for stage in pipeline_components(values["pipeline"]) if not stage.side_effects]:
            real = processes.run(stage.name, values, Path(folder))
            planned = next(planned for planned in plan.stages if planned.name == stage.name)
            assert planned.seconds is not None, planned.problem
            times = (f"{duration(planned.seconds.value)} ± {duration(planned.seconds.error)}",
                     duration(plan.start + real.seconds))  # fmt: skip
            sizes = (size(planned.memory), size(real.memory), size(planned.disk), size(real.disk))
            click.echo(f"| {' | '.join((f'`{stage.name}`', *times, *sizes))} |")


if __name__ == "__main__":
    main()
