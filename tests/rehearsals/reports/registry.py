"""MLflow: addresses, deleted experiments and runs, checkouts that move; on databases of SQLite,
without a server."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.rehearsals.reports.world import CHECKOUT, World, clean_environment, reported

ADDRESSES = (
    "sqlite://e5.db",
    " sqlite:////tmp/none.db",
    "mysql+nodriver://user:S3cret@127.0.0.1/db",
    "postgres://user:S3cret@127.0.0.1/db",
    "postgresql://user:_[]:=?S3cret@127.0.0.1:5433/db",
)
UNSEEN = (
    "http://[::1",
    "http://user:S3cret@127.0.0.1:1",
    "ftp://x",
    "sqlite:///",
    "file://x",
    "://",
    "\t",
)


def asked(world: World, address: str) -> str:
    """Run a command on the registry at an address. MLflow would try a database that does not answer
    for 100 s."""
    with mock.patch("mlflow.store.db.utils.MAX_RETRY_COUNT", 0):
        return world.pipelines(
            "promote",
            "--rollback",
            MLFLOW_TRACKING_URI=address,
            MLFLOW_HTTP_REQUEST_MAX_RETRIES="0",
        )


@reported(
    "M11",
    "addresses of databases that no driver reads",
    "mlflow#7851, #3764",
    dict.fromkeys(ADDRESSES, True),
)
def addresses(world: World) -> Any:
    outputs = {address: asked(world, address) for address in ADDRESSES}
    return {
        address: "error: MLFLOW_TRACKING_URI is" in output and "S3cret" not in output
        for address, output in outputs.items()
    }


PASSWORDS = (
    "Abc@def/S3cret",
    "S3cret@x",
    "a:S3cret",
    "a#S3cret",
    "a?S3cret",
    "S3cret%",
    "a/S3cret@b@c",
    "[S3cret",
)
"""Passwords that nobody has encoded for a URL."""


@reported(
    "M12",
    "passwords with '@', '/', '#' and others in messages",
    "mlflow#7851, #7465",
    [True] * 2 * len(PASSWORDS),
)
def passwords(world: World) -> Any:
    outputs = [
        asked(world, f"{scheme}://user:{word}@127.0.0.1:1/db")
        for word in PASSWORDS
        for scheme in ("http", "postgresql")
    ]
    return [
        "error: " in output and "Traceback" not in output and "S3cret" not in output
        for output in outputs
    ]


@reported("M11", "unseen: half addresses", "mlflow#2227, #2015", dict.fromkeys(UNSEEN, True))
def half_addresses(world: World) -> Any:
    outputs = {address: asked(world, address) for address in UNSEEN}
    return {
        address: "error: " in output and "Traceback" not in output and "S3cret" not in output
        for address, output in outputs.items()
    }


@contextmanager
def client_of(world: World, **variables: str) -> Iterator[Any]:
    """Yield a client of MLflow as Bifocal's stages have it."""
    with clean_environment({**world.tracking(), **variables}), chdir(world.folder):
        from runtime.mlflow.connection import connect

        yield connect()


@reported(
    "M10",
    "a deleted experiment: its name, and the way out",
    "mlflow#2690, #24220, #6445",
    "mlflow experiments restore",
)
def deleted_experiment(world: World) -> Any:
    with client_of(world) as client:
        from runtime.mlflow.connection import experiment_id

        client.delete_experiment(experiment_id(client))
    world.photos("photos")
    world.table("photos")
    recipe = world.write(
        "c.yaml",
        f"prepare_dataset: {{corpus: {{name: ImageFolder, root: '{world.folder}/photos'}}}}\n",
    )
    return world.stage("prepare_dataset", "--recipe", recipe, "--params", CHECKOUT / "params.yaml")


def promoted(world: World, *options: object) -> str:
    """Run 'promote' of the tiny versions with their policy."""
    import yaml

    from tests.components.cluster.versions import POLICY

    policy = world.write("policy.yaml", yaml.safe_dump(POLICY.model_dump(mode="json")))
    return world.pipelines("promote", "--policy", policy, *options)


def registered(world: World) -> None:
    """Register a version, promote it, register a better one, and delete the run of the first with
    'mlflow gc'."""
    from bifocal.datasets import read_dataset
    from runtime.artifacts import commit, open_partial
    from tests.bifocal.promotion.tiny_models import write_colors
    from tests.components.cluster.versions import POLICY, register
    from tests.runtime.mlflow.kills import lose_run

    folder = world.path("artifacts/x").parent
    write_colors(open_partial(folder / "dataset", {}), 50)
    manifest = {
        "component": "prepare_dataset",
        "code": "c0de",
        "inputs": {},
        "parameters": {},
        "metrics": {},
    }
    commit(folder / "dataset.partial", folder / "dataset", manifest)
    dataset = read_dataset(folder / "dataset")
    with client_of(world) as client:
        import mlflow

        mlflow.set_experiment("promotion")
        register(world.folder / "a", dataset, 0.6)
    output = promoted(world, "--force", "--reason", "the first")
    assert "[exit" not in output, output
    with client_of(world) as client:
        mlflow.set_experiment("promotion")
        register(world.folder / "b", dataset, 0.1)
        lose_run(client.get_model_version(POLICY.model, "1").run_id)


@reported(
    "M14",
    "promote after 'mlflow gc' of the champion's run",
    "mlflow#3160, #17240",
    "has no evidence any more: its run",
)
def lost_evidence(world: World) -> Any:
    registered(world)
    return promoted(world)


@reported("M14", "the same with --force --reason", "mlflow#17240", "2")
def forced(world: World) -> Any:
    registered(world)
    output = promoted(world, "--force", "--reason", "by hand")
    with client_of(world) as client:
        from tests.components.cluster.versions import POLICY

        version = client.get_model_version_by_alias(POLICY.model, POLICY.champion).version
    return str(version) if "Traceback" not in output else output


def stage_of(world: World, checkout: Path, *options: object) -> str:
    """Run a stage of a checkout, whose MLflow store is the database of the checkout."""
    for name in ("photos", "mlruns"):  # MLflow has made the latter once a stage has logged files
        (checkout / name).mkdir(exist_ok=True)
    shutil.copytree(world.photos("photos"), checkout / "photos", dirs_exist_ok=True)
    shutil.copy(world.table("photos"), checkout / "photos")
    name = str(checkout / "photos")
    recipe = world.write(
        "c.yaml", f"prepare_dataset: {{corpus: {{name: ImageFolder, root: '{name}'}}}}\n"
    )
    arguments = [
        "prepare_dataset",
        "--recipe",
        recipe,
        "--params",
        CHECKOUT / "params.yaml",
        *options,
    ]
    return world.stage(
        *arguments,
        "--artifacts",
        checkout / "artifacts",
        MLFLOW_TRACKING_URI="",
        DVC_ROOT=str(checkout),
    )


def artifact_places(checkout: Path) -> set[str]:
    """Return the folders of the files of all runs in the database of a checkout."""
    with sqlite3.connect(checkout / "mlflow.db") as database:
        return {
            place.partition("/mlruns")[0]
            for (place,) in database.execute("SELECT artifact_uri FROM runs")
        }


@reported(
    "M15",
    "a moved checkout: files below itself, none at its old place",
    "mlflow#3144, #12838",
    [True, False],
)
def moved_checkout(world: World) -> Any:
    old, new = world.folder / "my proj", world.folder / "moved"
    old.mkdir()
    shutil.copy(world.shared.store, old / "mlflow.db")
    output = stage_of(world, old)
    assert (old / "mlruns").exists(), output
    old.rename(new)
    shutil.rmtree(new / "artifacts")
    output = stage_of(world, new)
    assert (new / "artifacts/dataset").exists(), output
    return [artifact_places(new) == {new.as_uri()}, old.exists()]


@reported(
    "M15", "a copied checkout: its files are not the original's", "mlflow#184, #7002", [True, True]
)
def copied_checkout(world: World) -> Any:
    old, new = world.folder / "orig", world.folder / "prüf 100% +x"
    old.mkdir()
    shutil.copy(world.shared.store, old / "mlflow.db")
    stage_of(world, old)
    before = sorted(os.fspath(path) for path in old.rglob("*"))
    shutil.copytree(old, new)
    shutil.rmtree(new / "artifacts")
    output = stage_of(world, new)
    assert (new / "artifacts/dataset").exists(), output
    same = [
        path
        for path in sorted(os.fspath(path) for path in old.rglob("*"))
        if "mlflow.db" not in path
    ]
    return [
        artifact_places(new) == {new.as_uri()},
        same == [path for path in before if "mlflow.db" not in path],
    ]
