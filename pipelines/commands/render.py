"""``python -m pipelines render``."""

from pathlib import Path

import click
import yaml

from pipelines import dvc
from runtime import parameters


@click.command()
@click.option("--recipe", type=click.Path(path_type=Path), help="Render runs/<folder>/<name> for this recipe instead.")
@click.option("--check", is_flag=True, help="Write nothing; fail if dvc.yaml differs from the declarations.")
def render(recipe: Path | None, check: bool) -> None:
    """Write dvc.yaml.

    A recipe gets its own folder with the overlaid params.yaml, a dvc.yaml and its artifacts, so it overwrites nothing
    of the default run: recipes/scenes/smile.yaml is rendered to runs/scenes/smile and runs by
    'dvc repro runs/scenes/smile/dvc.yaml'.
    """
    values = parameters.load(Path("params.yaml"), [recipe] if recipe else [])
    if recipe is None:
        text, file = dvc.render(values), Path("dvc.yaml")
        if check:
            if not file.is_file() or file.read_text() != text:
                raise ValueError("dvc.yaml differs from the declarations: run 'python -m pipelines render'")
            return
    else:
        folder = Path("runs") / recipe.parent.name / recipe.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        text, file = dvc.render(values, folder.as_posix()), folder / "dvc.yaml"
    file.write_text(text)
    click.echo(file)
