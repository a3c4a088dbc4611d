"""Command line of the benchmarks: ``python -m benchmarks list | run NAME | render``."""

import runpy
import sys

import click

from benchmarks import render as tables
from benchmarks.common import ROOT


@click.group()
def main() -> None:
    """List and run benchmarks, and render the table of their results."""


@main.command("list")
def list_() -> None:
    """Print the name and the question of each benchmark."""
    for name, question in tables.benchmarks().items():
        click.echo(f"{name:<24}{question}")


# Without its own --help, so that "run NAME --help" prints the options of the benchmark.
@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(name: str, arguments: tuple[str, ...]) -> None:
    """Run the benchmark NAME with its own ARGUMENTS, and write its results to
    benchmarks/results."""
    known = tables.benchmarks()
    if name not in known:
        raise click.UsageError(f"no benchmark {name!r}; there are {', '.join(known)}")
    sys.argv = [name, *arguments]
    # alter_sys: processes that a benchmark starts look for its functions in the module "__main__".
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


@main.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a table is out of date.")
def render(check: bool) -> None:
    """Write the tables of results in README.md, benchmarks/README.md and docs/*.md."""
    pages = {page: text for page, text in tables.render().items() if page.read_text() != text}
    if check and pages:
        names = ", ".join(str(page.relative_to(ROOT)) for page in pages)
        raise click.ClickException(f"out of date: {names}; run 'python -m benchmarks render'")
    for page, text in pages.items():
        page.write_text(text)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
