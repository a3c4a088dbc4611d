"""The command ``bifocal``, whose commands import their modules when they run."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from bifocal.version import __version__, install
from runtime.process import run

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "Search drawn scenes with a model that is part of the package.",
        "index": "Make any folder of images searchable, without training.",
        "train": "Train a model on a folder of images with captions.",
        "search": "Show the images that fit a sentence best.",
        "where": "Show where in an image a phrase is.",
        "serve": "Serve search, heatmaps and a page over HTTP.",
        "correct": "Say what an image shows, or does not: the next training learns it.",
        "delete": "Delete images from the collection and the index of a run.",
        "evaluate": "Evaluate a trained model, and print its metrics.",
        "export": "Copy the ONNX model of a run to a folder.",
        "inspect": "Check a folder of images with captions.",
        "cache": "List or delete what is kept in the cache of this user.",
    }
)
"""Summary of each command; its module in this package has a function of its name with ``_command``
at the end."""
RESUMED = ("index", "train")
"""Commands that go on where they were stopped."""
GROUPS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "components": ("components.__main__", "Run one stage of the pipeline."),
        "pipelines": (
            "pipelines.commands",
            "Render, compile, run, schedule and promote the pipeline.",
        ),
    }
)
"""Groups of commands, each with the module that has it as ``main``, and its summary."""


OWN = {"serve": "serve", "pipelines": "pipelines"}
"""Extras of commands that need others than ``train``."""
SMALL = ("huggingface_hub", "onnx", "tokenizers", "watchfiles")
"""Packages of the extras ``search`` and ``small``."""


class LazyGroup(click.Group):
    """Group that imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return [*COMMANDS, *GROUPS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name; None for an unknown name."""
        if cmd_name not in COMMANDS and cmd_name not in GROUPS:
            return None
        try:
            if cmd_name in GROUPS:
                group: click.Command = import_module(GROUPS[cmd_name][0]).main
                return group
            module = cmd_name.replace("-", "_")
            command: click.Command = getattr(
                import_module(f"{__name__}.{module}"), f"{module}_command"
            )
        except ModuleNotFoundError as error:
            raise missing_extra(cmd_name, error) from error
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise missing_extra(str(ctx.invoked_subcommand), error) from error
        except OSError as error:
            if error.strerror is None or not isinstance(error.filename, str | os.PathLike):
                raise
            name = os.fspath(error.filename).removesuffix(".new").removesuffix(".partial")
            raise OSError(
                f"{name}: {error.strerror}"
            ) from error  # without a number and the name of a temporary file
        except KeyboardInterrupt:
            again = "; the same command goes on" if ctx.invoked_subcommand in RESUMED else ""
            raise click.ClickException(f"stopped{again}") from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, or suggest one."""
        close = get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
        if close and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"unknown command {args[0]!r}; did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [*COMMANDS.items(), *((name, summary) for name, (_, summary) in GROUPS.items())]
            )


def missing_extra(command: str, error: ModuleNotFoundError) -> click.ClickException:
    """Return the error of a command that needs a package: it names the extras that install it."""
    own = [OWN.get(command, "train") if error.name != "mlflow" else "train"]
    if command in ("index", "where") and error.name in SMALL:
        own = ["search", "small"]
    extras = ["cpu"] if error.name == "onnxruntime" else [*own, "cpu"]
    return click.ClickException(
        f"'bifocal {command}' needs the package {error.name}: {install(*extras)}"
    )


@click.group(cls=LazyGroup, context_settings={"max_content_width": 110})
@click.version_option(__version__, prog_name="bifocal", message="%(prog)s %(version)s")
def bifocal() -> None:
    """Search your own images by sentences, with a model trained on them."""


def main() -> None:
    """Run the command ``bifocal``."""
    run(bifocal, "bifocal")
