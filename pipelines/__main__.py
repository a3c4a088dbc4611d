"""Command line of the pipeline: ``python -m pipelines COMMAND``."""

from pipelines.commands import main
from runtime.command_line.program import run

if __name__ == "__main__":
    run(main, "python -m pipelines")
