"""Command line of the components: one command each, with its parameters in ``--help``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from runtime import parameters
from runtime.spec import Component
from runtime.torchrun import is_main_process

PARAMS_FILE = Path("params.yaml")


class StageCommand(click.Command):
    """Command of one component, with its parameters and their values in the help; ``stages`` are in ``params.yaml``."""

    def __init__(
        self, component: Component, components: Mapping[str, Component], stages: Mapping[str, Component]
    ) -> None:
        super().__init__(
            component.name,
            help=component.summary,
            short_help=component.summary,
            callback=self.start,
            params=_options(component),
        )
        self.component, self.components, self.stages = component, components, stages

    def start(self, executor_input: str | None, **options: Any) -> None:
        """Run the component with Kubeflow's JSON, or else with the other options."""
        if executor_input is not None:
            from runtime.kubeflow.executor import run_from_executor_input

            _echo_metrics(run_from_executor_input(self.component, executor_input))
        elif self.component.has_parameters:
            self.start_stage(**options)
        else:
            raise click.UsageError(f"Kubeflow runs {self.component.name}, with --executor-input")

    def start_stage(
        self,
        params: Path,
        recipe: tuple[Path, ...],
        settings: tuple[str, ...],
        artifacts: str,
        shard: str | None = None,
        merge: int | None = None,
    ) -> None:
        """Check the parameters of all stages, then run this stage, one shard, or the merge of its shards."""
        if shard is not None and merge is not None:
            raise click.UsageError("--shard and --merge exclude each other: run every shard, then merge them")
        values = parameters.load(params, recipe, settings)
        parameters.validate(values, self.stages.values())
        from runtime.job import merge_job, stage_job  # imports mlflow and boto3, which takes seconds
        from runtime.workspace import Workspace

        workspace = Workspace(artifacts)
        if merge is not None and self.component.merge_step is not None:
            job = merge_job(self.component, self.components[self.component.merge_step], merge, values["seed"])
        else:
            job = stage_job(self.component, values, shard)
        _echo_metrics(job.run(workspace, values))
        if is_main_process():
            workspace.upload(job.outputs.values())
            for artifact in job.outputs.values():
                click.echo(f"-> {artifacts}/{artifact}")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the artifacts and the parameters of the component."""
        from runtime.command_line.help import write_artifacts, write_parameters  # imports torch, which takes seconds

        write_artifacts(formatter, self.component)
        if self.component.has_parameters:
            write_parameters(formatter, self.component, PARAMS_FILE)


def _options(component: Component) -> list[click.Parameter]:
    file = click.Path(path_type=Path)
    executor_input = click.Option(
        ["--executor-input"],
        metavar="JSON",
        help="Kubeflow's ExecutorInput, which replaces all other options.",
    )
    if not component.has_parameters:
        return [executor_input]
    options: list[click.Parameter] = [
        click.Option(["--params"], type=file, default=PARAMS_FILE, show_default=True, help="File of the parameters."),
        click.Option(["--recipe"], type=file, multiple=True, help="File that overlays --params; may be repeated."),
        click.Option(
            ["--set", "settings"],
            multiple=True,
            metavar="KEY=VALUE",
            help=f"Set one value, as in --set {component.name}.KEY=VALUE; may be repeated.",
        ),
        click.Option(
            ["--artifacts"],
            default="artifacts",
            show_default=True,
            help="Folder of the artifacts, or s3://bucket/folder.",
        ),
        executor_input,
    ]
    if component.merge_step is not None:
        options += [
            click.Option(["--shard"], metavar="I/N", help="Process shard I of N, into an artifact of its own."),
            click.Option(
                ["--merge"], type=click.IntRange(min=1), metavar="N", help="Merge the N shards without copying."
            ),
        ]
    return options


def _echo_metrics(metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
        click.echo(f"{name}: {value:g}")


def command_line(components: Mapping[str, Component], stages: Mapping[str, Component]) -> click.Group:
    """Return the command line of ``components``; every command checks the sections of all ``stages`` first."""
    commands = [StageCommand(component, components, stages) for component in components.values()]
    return click.Group(
        help="Run one stage of Bifocal. 'make repro' or 'dvc repro' runs the whole pipeline.",
        commands=commands,
        context_settings={"max_content_width": 110},
    )
