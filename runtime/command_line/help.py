"""Help text of a stage: its artifacts and its section of ``params.yaml``."""

from collections.abc import Iterable
from pathlib import Path

import click

from bifocal.registry import registered
from runtime import parameters
from runtime.parameters.describe import Parameter, describe
from runtime.spec import Component


def write_artifacts(formatter: click.HelpFormatter, component: Component) -> None:
    """Write the names of the inputs and outputs."""
    rows = [(f"artifacts/{name}", "input") for name in component.inputs]
    rows += [(f"artifacts/{name}", "output") for name in component.outputs]
    if rows:
        with formatter.section("Artifacts"):
            formatter.write_dl(rows)


def write_parameters(formatter: click.HelpFormatter, component: Component, file: Path) -> None:
    """Write each parameter's value in ``file``, type, range and description; for a part, its choices and arguments."""
    values = parameters.load(file) if file.is_file() else {}
    section = values.get(component.name)
    section = {"seed": values.get("seed"), **(section if isinstance(section, dict) else {})}
    with formatter.section(f"Parameters, section {component.name} of {file}"):
        _write(formatter, describe(component.params, section))


def _write(formatter: click.HelpFormatter, described: Iterable[Parameter]) -> None:
    for parameter in described:
        is_group = parameter.members and not parameter.package and not parameter.value.startswith("null")
        formatter.write_text(f"{parameter.name}:" if is_group else f"{parameter.name}: {parameter.value}".rstrip())
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
