"""Command line of the stages: ``python -m components STAGE``."""

from components.catalog import all_components
from runtime.command_line import command_line
from runtime.process import run

main = command_line(all_components())

if __name__ == "__main__":
    run(main, "python -m components")
