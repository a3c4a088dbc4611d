"""Deletions, refreshes and rollbacks of releases: no item is lost or returned, whatever version
serves."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from bifocal.durable import change
from bifocal.search.collection.collection import Collection
from bifocal.search.deletion import delete_from_collection, delete_from_index
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel
from bifocal.serving.service.app import create_app
from bifocal.serving.service.settings import Settings
from pipelines.app import bifocal as bifocal_command
from pipelines.app.serve_sources import ReleaseSource, open_deletions
from runtime.artifacts import artifact_hash
from runtime.mlflow import alias_lock, get_version, get_version_number, make_champion, roll_back
from runtime.mlflow.releases import (
    RegistryDeletions,
    download_release,
    find_version,
    log_release,
    read_digest,
    released_items,
)
from tests.pipelines.releases import EMBEDDING, add_release, register, write_released_run

URI = "models:/bifocal@champion"
ALIASES = {"champion": "champion", "previous": "previous"}
ADMIN = {"authorization": "Bearer admin"}


def delete(run: Path, item_id: str) -> None:
    """Delete an item from the collection and the index of a run."""
    with change(run / "artifacts") as changed:
        delete_from_collection(changed, run / COLLECTION, [item_id])
        delete_from_index(changed, run / INDEX, [item_id])


@pytest.fixture
def runs(
    demo: TrainedModel, tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """Two runs with the same items, released as versions 1 and 2; the second was promoted after the
    first."""
    monkeypatch.chdir(tmp_path)
    first = write_released_run(demo, tmp_path / "a", "")
    second = write_released_run(demo, tmp_path / "b", "", sign=-1)
    for run in (first, second):
        number = register(run)
        add_release(run)
        with alias_lock("bifocal", 0):
            make_champion(
                get_version_number("bifocal", number),
                **ALIASES,
                answer="yes",
                file="promotion/a.json",
            )
    return first, second


def rollback(stale: bool = False) -> None:
    with alias_lock("bifocal", 0):
        roll_back("bifocal", **ALIASES, reason="", stale=stale)


def test_a_deletion_is_final_for_every_version_and_reaches_other_services(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    gone, other = Collection.open(runs[0] / COLLECTION).ids[12:14]
    sources = [ReleaseSource(URI, None) for _ in range(2)]
    settings = Settings(api_keys=frozenset({"client"}), admin_key="admin")
    apps = [create_app(source, settings, open_deletions(source, None), 0.05) for source in sources]
    with TestClient(apps[0], base_url="http://localhost", headers=ADMIN) as service:
        assert service.delete("/api/v1/item", params={"id": gone}).status_code == 204
    (tmp_path / "deleted.jsonl").write_text(
        '"00003"\n'
    )  # of a service that did not serve a release
    open_deletions(sources[1], tmp_path / "deleted.jsonl")
    with pytest.raises(
        ValueError, match="the registry has no version of another: there is nothing to delete"
    ):
        RegistryDeletions("another").add("00003")
    done = CliRunner().invoke(
        bifocal_command, ["delete", other, "--model", "bifocal"], catch_exceptions=False
    )
    assert done.output == "3 items of bifocal are deleted, whatever version serves\n"
    rollback()
    with TestClient(apps[1], base_url="http://localhost", headers=ADMIN) as service:
        found = service.post("/api/v1/search", json={"text": "a red star", "k": 20}).json()[
            "results"
        ]
        assert len(found) == 20
        assert not {gone, other, "00003"} & {result["id"] for result in found}
        assert service.get("/api/v1/thumbnail", params={"id": gone}).status_code == 404
    # A refresh embeds the image again, because its file is still there.
    add_release(runs[0])
    version = get_version_number("bifocal", 1)
    _, release = download_release(version, read_digest(version), tmp_path / "downloaded")
    collection = Collection.open(release / "collection")
    assert {
        name for name, deleted in zip(collection.ids, collection.deleted, strict=True) if deleted
    } == {
        gone,
        other,
        "00003",
    }
    vector = Collection.open(runs[0] / COLLECTION).vectors[12].tobytes()
    assert not any(vector in file.read_bytes() for file in release.rglob("*") if file.is_file())


def test_a_refresh_does_not_overwrite_a_release_that_changed_since(runs: tuple[Path, Path]) -> None:
    first, version = runs[0], find_version("bifocal", artifact_hash(runs[0] / ONNX))
    parts = [first / part for part in (ONNX, COLLECTION, INDEX, EMBEDDING)]
    previous = read_digest(version)
    for number in ("00001", "00002"):
        delete(first, number)
        if number == "00001":
            assert log_release(version, *parts, previous=previous)
    changed = read_digest(version)
    with pytest.raises(
        OSError, match=f"has the release {changed[:12]} since, in place of {previous[:12]}: another"
    ):
        log_release(version, *parts, previous=previous)
    assert read_digest(version) == changed
    log_release(version, *parts, previous=changed)
    assert read_digest(version) not in (previous, changed)


@pytest.mark.slow
def test_a_rollback_to_a_release_with_other_images_is_refused_until_it_is_refreshed(
    runs: tuple[Path, Path],
) -> None:
    """Otherwise newer images vanish, and images that were removed return."""
    delete(runs[0], "00007")
    add_release(runs[0])
    with pytest.raises(
        ValueError,
        match="version 1 lacks 1 images of version 2, and has 0 others: run the flow refr",
    ):
        rollback()
    RegistryDeletions("bifocal").add("00007")
    rollback()
    items = released_items(get_version_number("bifocal", 1))
    champion = get_version("bifocal", "champion")
    assert champion is not None
    assert champion.number == 1
    assert items == released_items(get_version_number("bifocal", 2))
    with alias_lock("bifocal", 0):
        make_champion(
            get_version_number("bifocal", 2), **ALIASES, answer="yes", file="promotion/a.json"
        )
    delete(runs[0], "00008")
    add_release(runs[0])
    done = CliRunner().invoke(
        bifocal_command, ["pipelines", "promote", "--rollback"], standalone_mode=False
    )
    assert "lacks 1 images" in str(done.exception)
    rollback(stale=True)
