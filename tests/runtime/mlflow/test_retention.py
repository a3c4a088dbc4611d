"""Former releases in a real registry: random moves of aliases, killed deletions, and what a service still reads."""

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from runtime.mlflow.connection import connect
from runtime.mlflow.registry import RELEASE_TAG
from runtime.mlflow.releases import retention
from runtime.mlflow.releases.retention import delete_former_releases, former_releases, lineage

MODEL, NEWEST, DAYS = "kept", 1, 3
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def client(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.chdir(tmp_path)  # MLflow writes artifacts beside its database
    found = connect()
    found.create_registered_model(MODEL)
    return found


def version(client: MlflowClient, **tags: str) -> str:
    run = client.create_run(client.create_experiment(f"e{random.random()}")).info
    return str(client.create_model_version(MODEL, f"runs:/{run.run_id}/model", run.run_id, tags=tags).version)


def release(client: MlflowClient, number: str, digest: str) -> None:
    run_id = client.get_model_version(MODEL, number).run_id
    for name in ("release.json", "collection/vectors.npy"):
        client.log_text(run_id, digest, f"releases/{digest}/{name}")
    client.set_model_version_tag(MODEL, number, RELEASE_TAG, digest)


def files(client: MlflowClient, number: str) -> set[str]:
    run_id = client.get_model_version(MODEL, number).run_id
    return {entry.path.removeprefix("releases/") for entry in client.list_artifacts(run_id, "releases")}


def test_releases_without_need_are_deleted_some_days_later(client: MlflowClient) -> None:
    first, second = version(client, **{"hash.onnx": "one"}), version(client, **{"hash.onnx": "two"})
    release(client, first, "monday")
    release(client, first, "tuesday")
    release(client, second, "second")
    client.set_registered_model_alias(MODEL, "champion", first)
    assert [found.digest for found in former_releases(MODEL, NEWEST)] == ["monday"]
    assert former_releases(MODEL, NEWEST)[0].size() == 2 * len("monday")
    assert delete_former_releases(MODEL, NEWEST, NOW, DAYS) == []  # a service may still read it
    assert delete_former_releases(MODEL, NEWEST, NOW + timedelta(days=2), DAYS) == []
    (deleted,) = delete_former_releases(MODEL, NEWEST, NOW + timedelta(days=3), DAYS)
    assert deleted.digest == "monday"
    assert (files(client, first), files(client, second)) == ({"tuesday"}, {"second"})
    assert lineage(MODEL, NEWEST) == {"one", "two"}
    client.delete_registered_model_alias(MODEL, "champion")
    assert lineage(MODEL, NEWEST) == {"two"}


def test_a_release_that_is_needed_again_is_not_due(client: MlflowClient) -> None:
    first = version(client)
    release(client, first, "monday")
    version(client)
    delete_former_releases(MODEL, NEWEST, NOW, DAYS)
    client.set_registered_model_alias(MODEL, "previous", first)  # a rollback target
    delete_former_releases(MODEL, NEWEST, NOW + timedelta(days=9), DAYS)
    client.delete_registered_model_alias(MODEL, "previous")
    delete_former_releases(MODEL, NEWEST, NOW + timedelta(days=10), DAYS)
    assert files(client, first) == {"monday"}, "it was needed until now"
    waiting = version(client, promotion="accepted")
    release(client, waiting, "waiting")
    version(client)
    delete_former_releases(MODEL, NEWEST, NOW + timedelta(days=20), DAYS)
    delete_former_releases(MODEL, NEWEST, NOW + timedelta(days=30), DAYS)
    assert (files(client, first), files(client, waiting)) == (set(), {"waiting"})
    assert RELEASE_TAG not in client.get_model_version(MODEL, first).tags, "no service loads a deleted release"


def test_random_moves_and_killed_deletions_lose_no_release_with_an_alias(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, now, numbers = random.Random(7), NOW, list[str]()

    def killed(*_: str) -> None:
        raise KeyboardInterrupt

    for step in range(16):
        action = generator.choice(["version", "refresh", "alias", "clean", "killed"])
        if action == "version" or not numbers:
            numbers.append(version(client))
            release(client, numbers[-1], f"{step:03d}-new")
        elif action == "refresh":
            release(client, generator.choice(numbers[-2:]), f"{step:03d}-refreshed")
        elif action == "alias":
            number = generator.choice(numbers[-3:])
            if RELEASE_TAG in client.get_model_version(MODEL, number).tags:
                client.set_registered_model_alias(MODEL, generator.choice(["champion", "previous"]), number)
        else:
            with monkeypatch.context() as patch:
                if action == "killed":  # after the tag is deleted, before the files are
                    patch.setattr(retention, "get_artifact_repository", killed)
                with suppress(KeyboardInterrupt):
                    delete_former_releases(MODEL, NEWEST, now, DAYS)
        now += timedelta(days=1)
        for number in map(str, client.get_registered_model(MODEL).aliases.values()):
            digest = client.get_model_version(MODEL, number).tags[RELEASE_TAG]
            assert digest in files(client, number)
            run_id = client.get_model_version(MODEL, number).run_id
            assert mlflow.artifacts.load_text(f"runs:/{run_id}/releases/{digest}/release.json") == digest
    for _ in range(2):
        delete_former_releases(MODEL, NEWEST, now, DAYS)
        now += timedelta(days=4)
    aliases = set(client.get_registered_model(MODEL).aliases.values())
    assert sum(len(files(client, number)) for number in numbers) <= len(aliases) + NEWEST
