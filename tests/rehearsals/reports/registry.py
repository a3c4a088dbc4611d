"""MLflow: passwords in addresses, and the deleted run of a champion; on databases of SQLite,
without a server."""

from collections.abc import Iterator
from contextlib import chdir, contextmanager
from typing import Any
from unittest import mock

from tests.rehearsals.reports.world import World, clean_environment, reported


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


@contextmanager
def client_of(world: World) -> Iterator[Any]:
    """Yield a client of MLflow as Bifocal's stages have it."""
    with clean_environment(world.tracking()), chdir(world.folder):
        from runtime.mlflow.connection import connect

        yield connect()


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
    "promote --force --reason after 'mlflow gc' of the champion's run",
    "mlflow#3160, #17240",
    "2",
)
def forced(world: World) -> Any:
    registered(world)
    output = promoted(world, "--force", "--reason", "by hand")
    with client_of(world) as client:
        from tests.components.cluster.versions import POLICY

        version = client.get_model_version_by_alias(POLICY.model, POLICY.champion).version
    return str(version) if "Traceback" not in output else output
