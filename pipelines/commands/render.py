"""``python -m pipelines render``."""

from pathlib import Path

import click
import yaml

from components.catalog import configurable_components
from pipelines import dvc, readme
from pipelines.dvc_lock import TABLE, remove_damaged_table
from runtime import parameters


@click.command()
@click.option("--recipe", type=click.Path(path_type=Path), help="Render runs/<folder>/<name> for this recipe instead.")
@click.option("--check", is_flag=True, help="Write nothing; fail if a file differs from the declarations.")
@click.option(
    "--dvc-only",
    is_flag=True,
    help="Prepare 'dvc repro': render only dvc.yaml, and repair what a killed DVC left.",
)
def render(recipe: Path | None, check: bool, dvc_only: bool) -> None:
    """Write dvc.yaml and the tables of the READMEs.

    A recipe gets its own folder with the overlaid params.yaml, a dvc.yaml and its artifacts, so it overwrites nothing
    of the default run: recipes/scenes/smile.yaml is rendered to runs/scenes/smile and runs by
    'dvc repro runs/scenes/smile/dvc.yaml'.
    """
    if dvc_only and not check and remove_damaged_table(Path()):
        click.echo(f"removed {TABLE}, which a killed DVC left half-written")
    values = parameters.load(Path("params.yaml"), [recipe] if recipe else [])
    parameters.validate(values, configurable_components().values())
    if recipe is not None:
        folder = Path("runs") / recipe.parent.name / recipe.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        texts = {folder / "dvc.yaml": dvc.render(values, folder.as_posix())}
    else:
        texts = {Path("dvc.yaml"): dvc.render(values)}
        if not dvc_only:
            texts |= readme.render(Path(), values)
    changed = [file for file, text in texts.items() if not file.is_file() or file.read_text(encoding="utf-8") != text]
    if check and changed:
        names = ", ".join(map(str, changed))
        raise ValueError(f"{names}: different from the declarations; run 'python -m pipelines render'")
    for file in changed:
        file.write_text(texts[file], encoding="utf-8")
        click.echo(file)
