"""Command line of the pipeline: ``python -m pipelines COMMAND``."""

from pipelines.commands import main
from runtime.process import run

if __name__ == "__main__":
    run(main, "python -m pipelines")
