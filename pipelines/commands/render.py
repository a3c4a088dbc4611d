"""Files rendered from the declarations of the stages: ``dvc.yaml``, the tables of the READMEs,
versions of packages."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bifocal.durable import write_json
from components.catalog import all_components, configurable_components, pipeline_components
from pipelines import dvc
from pipelines.commands.project import project_files, project_option
from runtime import parameters
from runtime.description import Parameter, describe, parts_table
from runtime.spec import Component

BLOCK = re.compile(r"<!-- rendered: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def render_readmes(root: Path, values: Mapping[str, Any]) -> dict[Path, str]:
    """Return the text of each README, whose tables stand between ``<!-- rendered: BLOCK -->`` and
    ``<!-- end -->``."""
    texts = {
        root / "components" / "README.md": {"stages": stages_table(), "cluster": cluster_table()}
    }
    pages: dict[str, str] = {}
    for component in configurable_components().values():
        readme = root / "components" / component.name / "README.md"
        texts[readme] = component_blocks(component, values.get(component.name, {}), pages)
    return {readme: fill(readme, blocks) for readme, blocks in texts.items()}


def component_blocks(
    component: Component, section: Mapping[str, Any], pages: dict[str, str]
) -> dict[str, str]:
    """Return the rendered blocks of a component's README by name.

    ``pages`` has the stage whose README lists the parts of a package, and gets the packages that
    this README lists.
    """
    blocks = {"artifacts": artifacts_table(component)}
    if component.has_parameters:
        # The seed is not in the section: it is set once, at the top of params.yaml.
        described = [
            parameter
            for parameter in describe(component.params, section)
            if parameter.name != "seed"
        ]
        blocks["parameters"] = _table(
            ("parameter", "value", "type", "meaning"), _parameter_rows(described)
        )
        packages = dict.fromkeys(_packages(described))
        if packages:
            own = [
                package
                for package in packages
                if pages.setdefault(package, component.name) == component.name
            ]
            others = [
                f"`{name}`: [{pages[name]}](../{pages[name]}/README.md#parameters).\n"
                for name in packages
                if name not in own
            ]
            blocks["parts"] = "\n".join([*map(_parts, own), *others])
    return blocks


def stages_table() -> str:
    """Table of the stages in ``components/README.md``: the embedding pipeline in topological order,
    then the others."""
    pipeline = {stage.name: stage for stage in pipeline_components()}
    rows = [
        (
            f"[`{stage.name}`]({stage.name}/README.md)"
            + ("" if stage.name in pipeline else " (pipeline `ranking_head`)"),
            stage.summary,
            _names(stage.inputs),
            _names(stage.outputs),
        )
        for stage in (pipeline | configurable_components()).values()
    ]
    return _table(("stage", "task", "inputs", "outputs"), rows)


def cluster_table() -> str:
    """Table of the steps that only a cluster has, in ``components/README.md``."""
    steps = [
        step for name, step in all_components().items() if name not in configurable_components()
    ]
    rows = [
        (f"`{step.name}`", step.summary, _names(step.inputs), _names(step.outputs))
        for step in steps
    ]
    return _table(("step", "task", "inputs", "outputs"), rows)


def artifacts_table(component: Component) -> str:
    """Table of inputs and outputs; each input with the stage that writes it."""
    writer = {
        output: stage.name
        for stage in configurable_components().values()
        for output in stage.outputs
    }
    inputs = ", ".join(f"`{name}` (of `{writer[name]}`)" for name in component.inputs)
    return _table(("inputs", "outputs"), [(inputs or "none", _names(component.outputs))])


def _parameter_rows(described: Iterable[Parameter], prefix: str = "") -> Iterator[Sequence[str]]:
    for parameter in described:
        name = f"{prefix}{parameter.name}"
        is_group = bool(parameter.members) and parameter.package is None
        value = "" if is_group and parameter.value != "null" else parameter.value
        if parameter.type:  # an entry of a list has no type of its own
            yield f"`{name}`", f"`{value}`" if value else "", parameter.type, parameter.description
        if is_group:
            yield from _parameter_rows(parameter.members, f"{name}.")


def _packages(described: Iterable[Parameter]) -> Iterator[str]:
    """Library packages whose parts the parameters and the chosen parts' arguments can name."""
    for parameter in described:
        if parameter.package is not None and parameter.package.startswith("bifocal."):
            yield parameter.package
        yield from _packages(parameter.members)


def _parts(package: str) -> str:
    rows = [
        (f"`{name}`", summary.replace("``", "`")) for name, summary in parts_table(package).items()
    ]
    return _table((f"part of `{package}`", "meaning"), rows)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        header,
        ["---"] * len(header),
        *([cell.replace("|", "\\|") for cell in row] for row in rows),
    ]
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def fill(readme: Path, blocks: Mapping[str, str]) -> str:
    """Return the text of ``readme`` with the contents of its blocks replaced."""
    if not readme.is_file():
        raise ValueError(
            f"{readme} is missing: every component has a README with the blocks {', '.join(blocks)}"
        )
    text = readme.read_text(encoding="utf-8")
    present = BLOCK.findall(text)
    if sorted(present) != sorted(blocks):
        raise ValueError(
            f"{readme} has the blocks {', '.join(present) or 'none'}, expected "
            f"{', '.join(blocks)}: write '<!-- rendered: BLOCK -->' and '<!-- end -->' on "
            "lines of their own"
        )
    return BLOCK.sub(
        lambda block: f"<!-- rendered: {block[1]} -->\n\n{blocks[block[1]]}\n<!-- end -->", text
    )


@click.command()
@project_option
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    help="Render runs/<folder>/<name> for this recipe instead.",
)
@click.option(
    "--check", is_flag=True, help="Write nothing; fail if a file differs from the declarations."
)
@click.option(
    "--dvc-only",
    is_flag=True,
    help="Prepare 'dvc repro': render only dvc.yaml, and repair what a killed DVC left.",
)
def render(recipe: Path | None, check: bool, dvc_only: bool) -> None:
    """Write dvc.yaml and the tables of the READMEs.

    A recipe gets its own folder with the overlaid params.yaml, a dvc.yaml and its artifacts, so it
    overwrites nothing of the default run: recipes/scenes/smile_infonce.yaml is rendered to
    runs/scenes/smile_infonce and runs by 'dvc repro runs/scenes/smile_infonce/dvc.yaml'.
    """
    recipe = recipe or next(iter(project_files("recipe.yaml")), None)
    if dvc_only and not check and dvc.remove_damaged_table(Path()):
        click.echo(f"removed {dvc.TABLE}, which a killed DVC left half-written")
    values = parameters.load(Path("params.yaml"), [recipe] if recipe else [])
    parameters.validate(values, configurable_components().values())
    if recipe is not None:
        folder = dvc.recipe_folder(recipe)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "params.yaml").write_text(parameters.dump_yaml(values))
        texts = {folder / "dvc.yaml": dvc.render(values, folder.as_posix())}
    else:
        texts = {Path("dvc.yaml"): dvc.render(values)}
        if not dvc_only:
            texts |= render_readmes(Path(), values)
    changed = [
        file
        for file, text in texts.items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    ]
    if check and changed:
        names = ", ".join(map(str, changed))
        raise ValueError(
            f"{names}: different from the declarations; run 'python -m pipelines render'"
        )
    for file in changed:
        file.write_text(texts[file], encoding="utf-8")
        click.echo(file)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def packages(file: Path) -> None:
    """Write the versions of Python and of the packages that stages depend on, and the stages' code
    hashes, to FILE.

    DVC runs this first in every 'dvc repro': a stage is repeated if a package that its code imports
    was upgraded, or if the meaning of its code changed. A reworded docstring or comment repeats
    nothing. 'dvc status' does not update FILE: run 'dvc repro packages' first.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, dvc.versions_and_code())
