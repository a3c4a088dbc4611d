"""Previous releases and models in a real registry: random moves of aliases, killed deletions, reads
of services."""

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from runtime.mlflow import get_version_number, retention, reuse_version
from runtime.mlflow.connection import connect
from runtime.mlflow.registry import DELETED_TAG, EVALUATION_DIR, ONNX_TAG, RELEASE_TAG
from runtime.mlflow.releases import read_digest
from runtime.mlflow.retention import delete_previous_files, needed_by_versions, previous_files

MODEL, NEWEST, DAYS = "kept", 1, 3
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def client(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.chdir(tmp_path)  # MLflow writes artifacts beside its database
    found = connect()
    found.create_registered_model(MODEL)
    return found


def lineage() -> set[str]:
    """Return the hashes of the artifacts that needed versions were made of."""
    return {name for name in needed_by_versions(MODEL, NEWEST) if "/" not in name}


def version(client: MlflowClient, **tags: str) -> str:
    run = client.create_run(client.create_experiment(f"e{random.random()}")).info
    return str(
        client.create_model_version(
            MODEL, f"runs:/{run.run_id}/model", run.run_id, tags=tags
        ).version
    )


def model_version(client: MlflowClient, onnx: str, **tags: str) -> str:
    """Register a version whose run has a model."""
    number = version(client, **{ONNX_TAG: onnx}, **tags)
    client.log_text(client.get_model_version(MODEL, number).run_id, onnx, "model/MLmodel")
    return number


def models(client: MlflowClient, numbers: list[str]) -> list[str]:
    """Return the versions that have a model."""
    runs = {number: client.get_model_version(MODEL, number).run_id for number in numbers}
    return [number for number, run_id in runs.items() if client.list_artifacts(run_id, "model")]


def reuse() -> int | None:
    """Register the model "onnx" again."""
    Path("evaluation").mkdir(exist_ok=True)
    return reuse_version(MODEL, "candidate", "onnx", Path("evaluation"), "metrics")


def clean_twice(now: datetime) -> None:
    for later in (0, DAYS):
        delete_previous_files(MODEL, NEWEST, now + timedelta(days=later), DAYS)


def release(client: MlflowClient, number: str, digest: str) -> None:
    run_id = client.get_model_version(MODEL, number).run_id
    for name in ("release.json", "collection/vectors.npy"):
        client.log_text(run_id, digest, f"releases/{digest}/{name}")
    client.set_model_version_tag(MODEL, number, RELEASE_TAG, digest)


def files(client: MlflowClient, number: str) -> set[str]:
    run_id = client.get_model_version(MODEL, number).run_id
    return {
        entry.path.removeprefix("releases/") for entry in client.list_artifacts(run_id, "releases")
    }


def test_releases_without_need_are_deleted_some_days_later(client: MlflowClient) -> None:
    first, second = version(client, **{"hash.onnx": "one"}), version(client, **{"hash.onnx": "two"})
    release(client, first, "monday")
    release(client, first, "tuesday")
    release(client, second, "second")
    client.set_registered_model_alias(MODEL, "champion", first)
    assert [found.digest for found in previous_files(MODEL, NEWEST)] == ["monday"]
    assert previous_files(MODEL, NEWEST)[0].size() == 2 * len("monday")
    assert delete_previous_files(MODEL, NEWEST, NOW, DAYS) == []  # a service may still read it
    assert delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=2), DAYS) == []
    (deleted,) = delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=3), DAYS)
    assert deleted.digest == "monday"
    assert (files(client, first), files(client, second)) == ({"tuesday"}, {"second"})
    assert lineage() == {"one", "two"}
    client.delete_registered_model_alias(MODEL, "champion")
    assert lineage() == {"two"}


def test_a_release_that_is_needed_again_is_not_due(client: MlflowClient) -> None:
    first = version(client)
    release(client, first, "monday")
    version(client)
    delete_previous_files(MODEL, NEWEST, NOW, DAYS)
    client.set_registered_model_alias(MODEL, "previous", first)  # a rollback target
    delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=9), DAYS)
    client.delete_registered_model_alias(MODEL, "previous")
    delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=10), DAYS)
    assert files(client, first) == {"monday"}, "it was needed until now"
    waiting = version(client, promotion="accepted")
    release(client, waiting, "waiting")
    version(client)
    delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=20), DAYS)
    delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=30), DAYS)
    assert (files(client, first), files(client, waiting)) == (set(), {"waiting"})
    assert RELEASE_TAG not in client.get_model_version(MODEL, first).tags, (
        "no service loads a deleted release"
    )


def test_models_without_need_are_deleted_some_days_later_and_their_versions_stay(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [model_version(client, f"onnx-{row}", promotion="no") for row in range(3)]
    numbers.append(model_version(client, "waiting", promotion="accepted"))
    numbers += [
        version(client, promotion="no"),
        model_version(client, "newest"),
    ]  # one that bifocal did not register
    client.log_text(
        client.get_model_version(MODEL, numbers[4]).run_id, "of a user", "model/MLmodel"
    )
    run_id = client.get_model_version(MODEL, numbers[2]).run_id
    client.log_text(run_id, "{}", f"{EVALUATION_DIR}/metrics.json")
    client.log_metric(run_id, "recall", 0.5)
    client.set_registered_model_alias(MODEL, "champion", numbers[0])
    client.copy_model_version(f"models:/{MODEL}/{numbers[1]}", "production")
    assert [str(found) for found in previous_files(MODEL, NEWEST)] == [
        f"model of version {numbers[2]}"
    ]
    assert previous_files(MODEL, NEWEST)[0].size() == len("onnx-2")
    assert lineage() == {"onnx-0", "waiting", "newest"}
    assert delete_previous_files(MODEL, NEWEST, NOW, DAYS) == []
    assert delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=2), DAYS) == []
    assert len(delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=3), DAYS)) == 1
    assert previous_files(MODEL, NEWEST) == []
    assert models(client, numbers) == [*numbers[:2], *numbers[3:]]
    kept = client.get_model_version(MODEL, numbers[2])
    assert kept.tags == {
        ONNX_TAG: "onnx-2",
        "promotion": "no",
        DELETED_TAG: (NOW + timedelta(days=3)).isoformat(),
    }
    assert client.get_run(run_id).data.metrics == {"recall": 0.5}
    assert [entry.path for entry in client.list_artifacts(run_id)] == [EVALUATION_DIR]
    listed = list[str]()
    monkeypatch.setattr(
        MlflowClient, "list_artifacts", lambda self, run_id, *_: listed.append(run_id) or []
    )
    assert previous_files(MODEL, NEWEST) == []
    assert len(listed) == len(numbers) - 1, "a version without files needs no request"
    assert run_id not in listed


def test_a_version_without_its_model_says_so(client: MlflowClient, tmp_path: Path) -> None:
    number = model_version(client, "onnx")
    version(client)
    clean_twice(NOW)
    found = get_version_number(MODEL, int(number))
    for read in (found.download_graphs, found.graph_files, lambda _: read_digest(found)):
        with pytest.raises(
            FileNotFoundError,
            match=f"version {number} of kept was deleted by .* clean' on 2026-01-04",
        ):
            read(tmp_path)


def test_a_deleted_model_that_is_trained_again_becomes_a_new_version(client: MlflowClient) -> None:
    number = model_version(client, "onnx")
    assert reuse() == int(number)
    client.delete_registered_model_alias(MODEL, "candidate")
    version(client)
    clean_twice(NOW)
    assert reuse() is None
    assert client.get_registered_model(MODEL).aliases == {}
    again = model_version(client, "onnx")
    assert reuse() == int(again)


@pytest.mark.parametrize("tagged", [False, True])
def test_a_model_that_is_registered_during_its_deletion_stays_or_is_registered_again(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch, tagged: bool
) -> None:
    number = model_version(client, "onnx")
    version(client)
    delete_previous_files(MODEL, NEWEST, NOW, DAYS)
    reused = list[int | None]()

    def set_tag(self: MlflowClient, model: str, version: str, key: str, value: str) -> None:
        if key == DELETED_TAG and not tagged:
            reused.append(reuse())
        original(self, model, version, key, value)
        if key == DELETED_TAG and tagged:
            reused.append(reuse())

    original = MlflowClient.set_model_version_tag
    monkeypatch.setattr(MlflowClient, "set_model_version_tag", set_tag)
    delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=3), DAYS)
    assert reused == [None if tagged else int(number)]
    assert models(client, [number]) == ([] if tagged else [number])
    assert (DELETED_TAG in client.get_model_version(MODEL, number).tags) is tagged


def test_a_model_that_is_deleted_during_its_registration_is_registered_again(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = model_version(client, "onnx")
    version(client)
    delete_previous_files(MODEL, NEWEST, NOW, DAYS)

    def set_alias(self: MlflowClient, model: str, alias: str, version: str) -> None:
        delete_previous_files(MODEL, NEWEST, NOW + timedelta(days=3), DAYS)
        original(self, model, alias, version)

    original = MlflowClient.set_registered_model_alias
    monkeypatch.setattr(MlflowClient, "set_registered_model_alias", set_alias)
    assert reuse() is None
    assert models(client, [number]) == []


@pytest.mark.slow
def test_random_moves_and_killed_deletions_lose_no_file_of_an_alias(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, now, numbers = random.Random(7), NOW, list[str]()

    def killed(*_: str) -> None:
        raise KeyboardInterrupt

    for step in range(16):
        action = generator.choice(["version", "refresh", "alias", "clean", "killed"])
        if action == "version" or not numbers:
            numbers.append(model_version(client, f"onnx-{step}"))
            release(client, numbers[-1], f"{step:03d}-new")
        elif action == "refresh":
            release(client, generator.choice(numbers[-2:]), f"{step:03d}-refreshed")
        elif action == "alias":
            number = generator.choice(numbers[-3:])
            if (
                DELETED_TAG not in (tags := client.get_model_version(MODEL, number).tags)
                and RELEASE_TAG in tags
            ):
                client.set_registered_model_alias(
                    MODEL, generator.choice(["champion", "previous"]), number
                )
        else:
            with monkeypatch.context() as patch:
                if (
                    action == "killed"
                ):  # after the tag of the release or of the version, before the files are deleted
                    patch.setattr(retention, "get_artifact_repository", killed)
                with suppress(KeyboardInterrupt):
                    delete_previous_files(MODEL, NEWEST, now, DAYS)
        now += timedelta(days=1)
        for number in map(str, client.get_registered_model(MODEL).aliases.values()):
            digest = client.get_model_version(MODEL, number).tags[RELEASE_TAG]
            assert digest in files(client, number)
            assert models(client, [number]), "the model of a version with an alias"
            run_id = client.get_model_version(MODEL, number).run_id
            assert (
                mlflow.artifacts.load_text(f"runs:/{run_id}/releases/{digest}/release.json")
                == digest
            )
    for _ in range(2):
        delete_previous_files(MODEL, NEWEST, now, DAYS)
        now += timedelta(days=4)
    aliases = set(client.get_registered_model(MODEL).aliases.values())
    assert sum(len(files(client, number)) for number in numbers) <= len(aliases) + NEWEST
    assert set(models(client, numbers)) == {*map(str, aliases), numbers[-1]}
    deleted = [
        number for number in numbers if DELETED_TAG in client.get_model_version(MODEL, number).tags
    ]
    assert sorted([*deleted, *models(client, numbers)], key=int) == numbers
