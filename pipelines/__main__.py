"""Command line of the pipeline: ``python -m pipelines COMMAND``."""

import sys

import click

from pipelines.commands import main

if __name__ == "__main__":
    try:
        main(prog_name="python -m pipelines")
    except (ValueError, OSError) as error:
        click.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)
