"""Command line of the components: one command each, with its parameters in ``--help``."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from bifocal.registry import registered
from runtime import parameters
from runtime.description import Parameter, describe
from runtime.process import is_main_process
from runtime.spec import Component

PARAMS_FILE = Path("params.yaml")


class StageCommand(click.Command):
    """Command of one component, with its parameters and their values in the help."""

    def __init__(self, component: Component, components: Mapping[str, Component]) -> None:
        super().__init__(
            component.name,
            help=component.summary,
            short_help=component.summary,
            callback=self.start,
            params=_options(component),
        )
        self.component, self.components = component, components

    def start(self, executor_input: str | None, **options: Any) -> None:
        """Run the component with Kubeflow's JSON, or else with the other options."""
        if executor_input is not None:
            from runtime.kubeflow.executor import run_from_executor_input

            run_from_executor_input(self.component, executor_input)  # Kubeflow shows the metrics
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
        """Check the parameters of this stage, then run it, one shard, or the merge of its
        shards."""
        if shard is not None and merge is not None:
            raise click.UsageError(
                "--shard and --merge exclude each other: run every shard, then merge them"
            )
        values = parameters.load(params, recipe, settings)
        stages = [name for name, component in self.components.items() if component.has_parameters]
        parameters.validate(values, [self.component], others=stages)
        from runtime.job import (
            Workspace,
            merge_job,
            stage_job,
        )  # imports mlflow and boto3, which takes seconds
        from runtime.stage import run_stage

        workspace = Workspace(artifacts)
        if merge is not None and self.component.merge_step is not None:
            job = merge_job(
                self.component, self.components[self.component.merge_step], values, workspace, merge
            )
        else:
            job = stage_job(self.component, values, workspace, shard)
        workspace.download(job.inputs.values())
        for name, value in run_stage(job).metrics.items():
            click.echo(f"{name}: {value:g}")
        if is_main_process():
            workspace.upload(job.outputs.values())
            for path in job.outputs.values():
                click.echo(f"-> {artifacts}/{path.name}")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the artifacts, and each parameter's value, type, range and description, with
        choices of parts."""
        rows = [(f"artifacts/{name}", "input") for name in self.component.inputs]
        rows += [(f"artifacts/{name}", "output") for name in self.component.outputs]
        if rows:
            with formatter.section("Artifacts"):
                formatter.write_dl(rows)
        if self.component.has_parameters:
            values = parameters.load(PARAMS_FILE) if PARAMS_FILE.is_file() else {}
            section = values.get(self.component.name)
            section = {"seed": values.get("seed"), **(section if isinstance(section, dict) else {})}
            with formatter.section(f"Parameters, section {self.component.name} of {PARAMS_FILE}"):
                _write(formatter, describe(self.component.params, section))


def _options(component: Component) -> list[click.Parameter]:
    file, artifacts = click.Path(path_type=Path), "Folder of the artifacts, or s3://bucket/folder."
    setting = f"Set one value, as in --set {component.name}.KEY=VALUE; may be repeated."
    executor_input = "Kubeflow's ExecutorInput, which replaces all other options."
    options: list[click.Parameter] = [
        click.Option(["--executor-input"], metavar="JSON", help=executor_input)
    ]
    if component.has_parameters:
        options[:0] = [
            click.Option(
                ["--params"],
                type=file,
                default=PARAMS_FILE,
                show_default=True,
                help="File of parameters.",
            ),
            click.Option(
                ["--recipe"],
                type=file,
                multiple=True,
                help="File that overlays --params; may be repeated.",
            ),
            click.Option(["--set", "settings"], multiple=True, metavar="KEY=VALUE", help=setting),
            click.Option(["--artifacts"], default="artifacts", show_default=True, help=artifacts),
        ]
    if component.merge_step is not None:
        first = " Before the others, shard 0 lists their items." if component.listed_paths else ""
        count = click.IntRange(min=1)
        options += [
            click.Option(
                ["--shard"],
                metavar="I/N",
                help=f"Process shard I of N, into an artifact of its own.{first}",
            ),
            click.Option(
                ["--merge"], type=count, metavar="N", help="Merge the N shards without copying."
            ),
        ]
    return options


def command_line(components: Mapping[str, Component]) -> click.Group:
    """Return the command line of ``components``; a command checks its own section of
    ``params.yaml``."""
    commands = [StageCommand(component, components) for component in components.values()]
    return click.Group(
        help="Run one stage of Bifocal. 'make repro' or 'dvc repro' runs the whole pipeline.",
        commands=commands,
        context_settings={"max_content_width": 110},
    )


def _write(formatter: click.HelpFormatter, described: Iterable[Parameter]) -> None:
    for parameter in described:
        is_group = (
            parameter.members and not parameter.package and not parameter.value.startswith("null")
        )
        formatter.write_text(
            f"{parameter.name}:" if is_group else f"{parameter.name}: {parameter.value}".rstrip()
        )
        with formatter.indentation():
            text = [parameter.description, f"[{parameter.type}]" if parameter.type else ""]
            if any(text):
                formatter.write_text(" ".join(filter(None, text)))
            if parameter.package:
                names = ", ".join(sorted(registered(parameter.package)))
                formatter.write_text(f"parts of {parameter.package}: {names}")
            if parameter.part and parameter.members:
                formatter.write_text(f"arguments of {parameter.part}:")
                with formatter.indentation():
                    _write(formatter, parameter.members)
            else:
                _write(formatter, parameter.members)
