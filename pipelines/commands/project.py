"""Projects: ``python -m pipelines new``, and the option ``--project`` of the other commands."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bifocal.datasets.corrections import FILE, HEADER
from bifocal.datasets.remote_files import is_address
from bifocal.durable import plain
from pipelines import policies
from pipelines.app.inspect import findings_tables, inspected
from pipelines.app.run_folder import FolderOrAddress, shipped_file
from runtime import parameters
from runtime.checkout import ask_git
from runtime.redaction import without_credentials

if TYPE_CHECKING:
    from bifocal.datasets import Dataset
    from pipelines.kubeflow.resources import Resources

PROJECTS, KUBEFLOW_RUNS = Path("projects"), Path("runs/kubeflow")
RUNS = KUBEFLOW_RUNS / "local"
RECIPE, POLICY = "recipe.yaml", "promotion.yaml"
KEY = "project"
RETENTION = """\
# What 'clean' deletes on this machine: all that neither the champion, the version before it, nor the
# newest versions need.
releases: {days: 1, versions: 2}
artifacts: {days: 1, newest: 1}
checkpoints: {days: 1}
"""
IMAGES, LOSS = 500, 10
"""Test images that rule out a drop of 4 percentage points, and a loss of the recall sum of 10."""


def _choose(context: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is not None and not (PROJECTS / name / RECIPE).is_file():
        known = (
            ", ".join(sorted(file.parent.name for file in PROJECTS.glob(f"*/{RECIPE}"))) or "none"
        )
        raise click.BadParameter(
            f"{PROJECTS / name / RECIPE} does not exist; projects here: {known}; 'python -m "
            f"pipelines new {name} --images DIR' writes one"
        )
    context.meta[KEY] = name


project_option = click.option(
    "--project",
    metavar="NAME",
    is_eager=True,
    expose_value=False,
    callback=_choose,
    help="Take recipe, policy, schedules and resources from projects/NAME, which 'python -m "
    "pipelines new' writes.",
)


def chosen_project() -> str | None:
    """Return the value of ``--project`` of the running command."""
    context = click.get_current_context(silent=True)
    return context.meta.get(KEY) if context else None


def run_folder(default: Path = Path()) -> Path:
    """Return the folder of the chosen project's runs on this machine; ``default`` without one."""
    project = chosen_project()
    return KUBEFLOW_RUNS / project if project else default


folder_argument = click.argument(
    "folder",
    required=False,
    type=click.Path(path_type=Path),
    callback=lambda context, argument, folder: folder or run_folder(),
)


def project_files(name: str) -> list[Path]:
    """Return the file ``name`` of the chosen project, if there is one."""
    project = chosen_project()
    file = PROJECTS / (project or "") / name
    return [file] if project and file.is_file() else []


def policy_file(given: Path | None = None) -> Path:
    """Return the policy of promotions: ``given``, or else the project's, or else the default."""
    return given or next(iter(project_files(POLICY)), policies.PROMOTION)


def load_resources(
    images: Path | None, overlays: Sequence[Path] = (), *, local: bool = False
) -> "Resources":
    """Return the values of ``resources.yaml``, with the digests of a JSON file, and with files that
    replace keys; if ``local``, folders of this machine in place of a cluster's, unless files name
    these."""
    from pipelines.kubeflow import resources

    files = [*project_files("cluster.yaml"), *overlays]
    digests, project = resources.load_images(images) if images else None, chosen_project()
    found = resources.load(images=digests, overlays=files, project=project)
    if project:  # each has an experiment of MLflow
        environment = {"MLFLOW_EXPERIMENT_NAME": project, **found.environment}
        found = found.model_copy(update={"environment": environment})
    if not local or files:
        return found
    folder = str((PROJECTS / project / "monitoring" if project else Path("monitoring")).absolute())
    here = {
        "pipeline_root": str(run_folder(RUNS).absolute()),
        "monitoring": found.monitoring.model_copy(update={"folder": folder}),
    }
    return found.model_copy(update={**here, "checkpoints": None})


def _name(context: click.Context, argument: click.Parameter, name: str) -> str:
    if not re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) or name.startswith("bifocal"):
        rule = (
            "small letters, digits and '-', not 'bifocal' at the start, which is the default model"
        )
        raise click.BadParameter(f"{name!r}; expected {rule}")
    return name


@click.command()
@click.argument("name", callback=_name)
@click.option(
    "--images",
    required=True,
    type=FolderOrAddress(exists=True, resolve_path=True),
    help="Folder with images and captions, as of 'bifocal train', or its address "
    "s3://bucket/folder.",
)
@click.option(
    "--cluster", is_flag=True, help="Also write cluster.yaml, the values of a Kubeflow cluster."
)
def new(name: str, images: str, cluster: bool) -> None:
    """Write projects/NAME: the recipe, policy and schedules of a model on your images.

    The command looks at the images as 'bifocal inspect' does, and chooses the parts as 'bifocal
    train' does. The other commands read the files by --project NAME. The folder is not in git: a
    cluster gets its values with the pipeline.
    """
    from rich.console import Console

    from pipelines.app.training.recipe import compose

    folder, root = PROJECTS / name, _root(images, cluster)
    if folder.exists():
        raise FileExistsError(
            f"{folder} exists: change its files, delete the folder, or choose another name"
        )
    with inspected(images) as seen:
        Console().print(findings_tables(seen.inspection))
        training = compose(str(seen.root), None, (), (), is_here=not cluster)
        policy = _policy(name, seen.dataset, allow_dirty=not cluster)
    local = not is_address(root) and not Path(root).is_absolute()
    own = {
        # Other machines read images from S3, or get copies of files that DVC tracks.
        "prepare_dataset": {
            "corpus": {"root": root, **({} if cluster else {"corrections": f"{folder}/{FILE}"})},
            "copy_images": local,
        },
        "embed_collection": {"name": name},
        "register_model": {"model": name},
    }
    values = parameters.merge(training.values, own, parts=False)
    schedules = shipped_file("pipelines/kubeflow/schedules.yaml").read_text(encoding="utf-8")
    schedules = schedules.replace("recipes: []", f"recipes: [{(folder / RECIPE).as_posix()}]")
    why = f"{training.reasons}: the parts of recipes/own/{training.recipe.name}"
    texts = {RECIPE: _recipe(values, why), POLICY: policy, "schedules.yaml": schedules}
    if cluster:
        texts["cluster.yaml"] = _cluster(name, root)
    else:
        texts |= {"retention.yaml": RETENTION, FILE: ",".join(HEADER) + "\n"}
    folder.mkdir(parents=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
        click.echo(f"wrote {folder / file}")
    run, digests = (
        f"python -m pipelines run --project {name}",
        f"--project {name} --images images.json",
    )
    here = (run, f"bifocal serve --model models:/{name}@champion", f"{run} --flow retrain")
    there = (
        f"python -m pipelines {step} {digests}"
        for step in ("preflight", "run --runner cluster", "schedule apply")
    )
    click.echo("\n  ".join(["Next:", *(there if cluster else here)]))


def _root(images: str, cluster: bool) -> str:
    """Return the root for the recipe: for a cluster an address, or a path in the checkout."""
    if is_address(images) or not cluster:
        return images
    checkout = Path.cwd()
    if not Path(images).is_relative_to(checkout):
        raise ValueError(
            f"a cluster cannot read {images}: name an address s3://bucket/folder, or 'dvc add' "
            f"a copy below {checkout}"
        )
    return Path(images).relative_to(checkout).as_posix()


def _recipe(values: dict[str, Any], why: str) -> str:
    """Return the values that differ from ``params.yaml`` as the text of a recipe, with a comment
    for each section."""
    from components.catalog import configurable_components

    default, components = parameters.load(shipped_file("params.yaml")), configurable_components()
    lines = [f"# {why}, which explains them.", "# params.yaml has the other values."]
    for section, given in values.items():
        if not isinstance(given, dict):
            continue
        changed = {
            key: value for key, value in given.items() if value != default[section].get(key, ...)
        }
        if changed:
            copied = plain({section: changed})  # YAML would write equal lists as aliases
            text = parameters.dump_yaml(copied, default_flow_style=None, width=110)
            lines += ["", f"# {components[section].summary}", text.rstrip()]
    return "\n".join(lines) + "\n"


def _policy(name: str, dataset: "Dataset", *, allow_dirty: bool) -> str:
    """Return a policy whose guards the test split can measure."""
    from bifocal.promotion.checks import uncertainty

    split = dataset.split("test")
    images = max(2, split.captions["image_id"].nunique())
    # Images that look like training images are left out.
    required = max(2, images * 9 // 10)
    width = math.sqrt(IMAGES / images)  # of a confidence interval, relative to IMAGES images
    drop = round(4 * max(1.0, width), 1)
    guards = [
        "caption_retrieval.R@1",
        "image_retrieval.R@1",
        *(["pointing"] if len(split.phrases) else []),
    ]
    chance = 200 * sum(min(1, k / images) for k in (1, 5, 10))
    boxes = "" if len(split.phrases) else " Pointing has none: the test images have no boxes."
    return (
        "# When a new model becomes the champion. pipelines/policies/promotion.yaml has the "
        "other keys.\n"
        f"model: {name}\n"
        f"# The test split has {images:,} images with captions: they tell a recall to "
        f"{uncertainty(images)}, "
        f"{IMAGES} to {uncertainty(IMAGES)}.\n"
        f"min_images: {required}\n"
        "# Twice what a random order finds, at most halfway from it to 600.\n"
        f"floors: {{recall_sum: {min(2 * chance, (chance + 600) / 2):.1f}}}\n"
        "# A model that finds more replaces the champion if the recall sum has not lost more than "
        "this, in percentage\n# points, with a confidence of 95 % over all looks.\n"
        f"min_gain: {-round(LOSS * width, 1)}\n"
        f"# Drops in percentage points that so many images can rule out.{boxes}\n"
        f"max_drops: {{{', '.join(f'{guard}: {drop}' for guard in guards)}}}\n"
        + (
            "# Code without a commit is accepted; each version keeps its "
            "parameters.\nallow_dirty: true\n" * allow_dirty
        )
    )


def _cluster(name: str, root: str) -> str:
    bucket = root.removeprefix("s3://").partition("/")[0] if is_address(root) else "BUCKET"
    folder = f"s3://{bucket}/{{namespace}}/bifocal-{name}"
    url = without_credentials(
        ask_git("remote", "get-url", "origin") or "https://YOUR.SERVER/REPOSITORY.git"
    )
    return (
        "# Values of your cluster; pipelines/kubeflow/resources.yaml has the other keys.\n"
        f"pipeline_root: {folder}/runs\n"
        f"checkpoints: {folder}/checkpoints\n"
        f'trainer: {{runtime: torch-distributed, folder: "{folder}/train_jobs"}}\n'
        f'monitoring: {{folder: "{folder}/monitoring", queries: [], days: 7}}\n'
        "# true also pushes all outputs to the DVC remote, and a branch to the repository.\n"
        "push: false\n"
        + (
            ""
            if is_address(root)
            else f"# Steps read {root} from it, as DVC tracks it.\nrepository: {url}\n"
        )
    )
