"""Options that several commands share."""

from pathlib import Path

import click

recipes = click.option(
    "--recipe",
    "recipes",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File that overlays params.yaml; may be repeated.",
)
settings = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one value of params.yaml, as in --set prepare_dataset.corpus.root=s3://bucket/coco; may be repeated.",
)
images = click.option(
    "--images",
    type=click.Path(path_type=Path, exists=True),
    help='Image digests as JSON, {"cpu": "NAME@sha256:...", "gpu": ...}: images.json of containers/build.py.',
)
resources = click.option(
    "--resources",
    "overlays",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="File that overlays pipelines/kubeflow/resources.yaml; may be repeated.",
)
flow = click.option(
    "--flow",
    type=click.Choice(["train", "retrain", "refresh", "refresh-previous", "monitor", "clean"]),
    default="train",
    show_default=True,
    help="train: all stages. retrain: train if the data changed enough. refresh: embed new images with the champion. "
    "refresh-previous: embed them with the version before it, for a rollback. "
    "monitor: compare the last days with the training. clean: list or delete what nothing needs.",
)
revision = click.option("--revision", help="Git commit that user files are read from; by default this checkout's.")
skipped_checks = click.option(
    "--skip-check",
    "skipped",
    multiple=True,
    type=click.Choice(["images", "repository", "buckets", "permissions", "all"]),
    help="Check of the cluster to omit; may be repeated.",
)
