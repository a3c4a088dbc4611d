"""Command line of the components: one command each, with its parameters in ``--help``."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import yaml
from safetensors import SafetensorError

from runtime import parameters, shards
from runtime.spec import Component, StrictModel


class StageCommand(click.Command):
    """One component as a command; its help shows the parameters with their meaning and current values.

    Args:
        component: what the command runs.
        components: every component by its name, among which is the merge step.
        stages: the components that have a section in ``params.yaml``.
    """

    def __init__(
        self, component: Component, components: Mapping[str, Component], stages: Mapping[str, Component]
    ) -> None:
        file = click.Path(path_type=Path)
        options = [
            click.Option(["--params"], type=file, default=Path("params.yaml"), show_default=True, help="The values."),
            click.Option(["--recipe"], type=file, multiple=True, help="A file that overlays them; may be repeated."),
            click.Option(
                ["--set", "settings"],
                multiple=True,
                metavar="KEY=VALUE",
                help=f"One value, as in --set {component.name}.KEY=VALUE; may be repeated.",
            ),
            click.Option(
                ["--artifacts"],
                default="artifacts",
                show_default=True,
                help="Folder of the artifacts, or s3://bucket/folder.",
            ),
            click.Option(
                ["--executor-input"],
                metavar="JSON",
                help="Kubeflow's message, which names parameters and artifacts instead of all the options above.",
            ),
        ]
        if component.merge_step is not None:
            options += [
                click.Option(["--shard"], metavar="I/N", help="Do part I of N alone, into an artifact of its own."),
                click.Option(
                    ["--merge"],
                    type=click.IntRange(min=1),
                    metavar="N",
                    help="Put the N parts together, without copying.",
                ),
            ]
        summary = component.summary
        super().__init__(component.name, help=summary, short_help=summary, callback=self.start, params=[*options])
        self.component, self.components, self.stages = component, components, stages

    def start(
        self,
        params: Path,
        recipe: tuple[Path, ...],
        settings: tuple[str, ...],
        artifacts: str,
        executor_input: str | None,
        shard: str | None = None,
        merge: int | None = None,
    ) -> None:
        """Check every parameter of the pipeline, then run the stage."""
        if executor_input is not None:
            from runtime.kfp_executor import execute

            self.report(execute(self.component, executor_input))
            return
        if shard is not None and merge is not None:
            raise click.UsageError("--shard makes a part, --merge puts the parts together: give one of them")
        values = parameters.load(params, recipe, settings)
        parameters.validate(values, self.stages.values())
        from runtime.s3 import storage
        from runtime.stage import run_stage

        remote = storage.is_remote(artifacts)
        if remote and "RANK" in os.environ:
            raise ValueError(f"--artifacts {artifacts}: several processes (torchrun) share a folder; give a local one")
        folder = storage.local_folder(artifacts) if remote else Path(artifacts)
        component, arguments = self.component, {} if shard is None else {"shard": shard}
        inputs = {name: folder / name for name in component.inputs}
        outputs = {name: folder / (shards.name_of(name, shard) if shard else name) for name in component.outputs}
        if merge is not None and component.merge_step is not None:
            (whole,) = component.outputs
            parts = [f"{number}/{merge}" for number in range(1, merge + 1)]
            inputs = {f"shard_{number}": folder / shards.name_of(whole, part) for number, part in enumerate(parts, 1)}
            component = self.components[component.merge_step]
            checked = component.params(seed=values["seed"])
        else:
            local = storage.localized(values, component)
            checked = parameters.validate(local, self.stages.values())[component.name]
        if remote:
            for path in inputs.values():
                storage.Storage().download(f"{artifacts}/{path.name}", path)
        self.report(run_stage(component, checked, inputs, outputs, values, arguments))
        if os.environ.get("RANK", "0") != "0":
            return
        for path in outputs.values():
            if remote:
                storage.Storage().upload(path, f"{artifacts}/{path.name}")
            click.echo(f"-> {artifacts}/{path.name}")

    def report(self, figures: Mapping[str, float]) -> None:
        """Print what came of the stage."""
        for name, figure in figures.items():
            click.echo(f"{name}: {figure:g}")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the stage reads and writes, and its section of ``params.yaml``."""
        component = self.component
        with formatter.section("Artifacts"):
            inputs = [(f"artifacts/{name}", "read") for name in component.inputs]
            formatter.write_dl(inputs + [(f"artifacts/{name}", "written") for name in component.outputs])
        file = Path("params.yaml")
        values = (yaml.safe_load(file.read_text()) or {}) if file.is_file() else {}
        section = {"seed": values.get("seed")} | values.get(component.name, {})
        with formatter.section(f"Parameters, section {component.name}"):
            _write_values(formatter, component.params, section)


def _write_values(formatter: click.HelpFormatter, group: type[StrictModel], given: Mapping[str, object]) -> None:
    """Each value with its meaning, those of a group within it indented; a group that is null has names alone."""
    for name, field in group.model_fields.items():
        value = (
            yaml.safe_dump(given[name], default_flow_style=True, width=10_000).splitlines()[0] if name in given else ""
        )
        inner = next(
            (model for model in parameters.nested_models(field.annotation) if issubclass(model, StrictModel)), None
        )
        formatter.write_text(f"{name}: {value}" if inner is None or given.get(name) is None else f"{name}:")
        with formatter.indentation():
            formatter.write_text(field.description or "")
            if inner is not None:
                within = given.get(name)
                _write_values(formatter, inner, within if isinstance(within, Mapping) else {})


def command_line(components: Mapping[str, Component], stages: Mapping[str, Component]) -> click.Group:
    """Return the command line of ``components``.

    Args:
        components: every component by its name.
        stages: those that have a section in ``params.yaml``; their parameters are checked before any work starts.
    """
    commands = [StageCommand(component, components, stages) for component in components.values()]
    return click.Group(
        help="Run one stage of Bifocal. 'make repro' or 'dvc repro' runs the whole pipeline.",
        commands=commands,
        context_settings={"max_content_width": 110},
    )


def run(main: click.Command, name: str) -> None:
    """Run ``main`` as the program ``name``; errors that the user can fix are one message, others keep a traceback."""
    try:
        main(prog_name=name)
    except (ValueError, OSError, ArithmeticError, SafetensorError) as error:
        click.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)
