"""Command line of the stages: ``python -m components STAGE``."""

from components.catalog import all_components, configurable_components
from runtime.command_line.commands import command_line
from runtime.command_line.program import run

main = command_line(all_components(), configurable_components())

if __name__ == "__main__":
    run(main, "python -m components")
