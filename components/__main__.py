"""The only command line: ``python -m components <stage>``."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import yaml
from safetensors import SafetensorError

from components import parameters, shards
from components.spec import Component, Values


class Stage(click.Command):
    """One stage as a command; its help shows the parameters with their meaning and present values."""

    def __init__(self, component: Component) -> None:
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
        if component.merge is not None:
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
        self.component = component

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
            from components.executor import execute

            self.report(execute(self.component, executor_input))
            return
        if shard is not None and merge is not None:
            raise click.UsageError("--shard makes a part, --merge puts the parts together: give one of them")
        values = parameters.read(params, recipe, settings)
        sections = parameters.validate(values, parameters.stages().values())
        from components import storage  # after the check: what they import takes seconds
        from components.stage import run_stage

        remote = storage.is_remote(artifacts)
        if remote and "RANK" in os.environ:
            raise ValueError(f"--artifacts {artifacts}: several processes (torchrun) share a folder; give a local one")
        folder = storage.local_folder(artifacts) if remote else Path(artifacts)
        component, arguments = self.component, {} if shard is None else {"shard": shard}
        inputs = {name: folder / name for name in component.inputs}
        outputs = {name: folder / (shards.name_of(name, shard) if shard else name) for name in component.outputs}
        if merge is not None and component.merge is not None:
            (whole,) = component.outputs
            parts = [f"{number}/{merge}" for number in range(1, merge + 1)]
            inputs = {f"shard_{number}": folder / shards.name_of(whole, part) for number, part in enumerate(parts, 1)}
            component = parameters.steps()[component.merge]
            checked = component.params(seed=values["seed"])
        else:
            section = storage.localized(values, component)[component.name]
            paths = {name: section[name] for name in component.source_fields() if section[name] is not None}
            checked = sections[component.name].model_copy(
                update={name: Path(path) for name, path in paths.items()},
            )
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


def _write_values(formatter: click.HelpFormatter, group: type[Values], given: Mapping[str, object]) -> None:
    """Each value with its meaning, those of a group within it indented; a group that is null has names alone."""
    for name, field in group.model_fields.items():
        value = (
            yaml.safe_dump(given[name], default_flow_style=True, width=10_000).splitlines()[0] if name in given else ""
        )
        inner = next((model for model in parameters.models(field.annotation) if issubclass(model, Values)), None)
        formatter.write_text(f"{name}: {value}" if inner is None or given.get(name) is None else f"{name}:")
        with formatter.indentation():
            formatter.write_text(field.description or "")
            if inner is not None:
                within = given.get(name)
                _write_values(formatter, inner, within if isinstance(within, Mapping) else {})


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Run one stage of Bifocal. The whole line is run by 'make repro', or 'dvc repro'."""


for declared in parameters.steps().values():
    main.add_command(Stage(declared))


if __name__ == "__main__":
    try:
        main(prog_name="python -m components")
    except (ValueError, OSError, ArithmeticError, SafetensorError) as error:
        # What the user can mend is said in one message; a fault of ours keeps its traceback.
        click.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)
