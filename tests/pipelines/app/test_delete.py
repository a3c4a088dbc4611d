"""``bifocal delete``."""

import json
import os
import shutil
from pathlib import Path

import bifocal
from bifocal.search.collection.collection import Collection
from pipelines.app.demo import unpack
from runtime import artifacts
from tests.pipelines.app.conftest import Command, write_manifest


def test_deleted_images_are_in_no_file_of_the_run(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "demo"
    folder = run / "artifacts" / "collection"
    ids = unpack(run).collection.ids
    vectors = [Collection.open(folder).vectors[row].tobytes() for row in range(3)]
    write_manifest(folder)
    # As 'bifocal serve --deletions' writes it.
    (tmp_path / "deleted.jsonl").write_text(
        "".join(json.dumps(item_id) + "\n" for item_id in ids[1:3]) + '"torn'
    )
    result = command("delete", ids[0], "--run", run, "--list", tmp_path / "deleted.jsonl")
    assert result.exit_code == 0, result.output
    assert "'\"torn' is not an id as a JSON string: left out" in result.output
    assert f"deleted 3 from {run}: {len(ids) - 3} items and 3 tombstones are left" in result.output
    for file in (path for path in run.rglob("*") if path.is_file()):
        assert not any(vector in file.read_bytes() for vector in vectors), file
    assert not {hit.id for hit in bifocal.load(run).search("a red star", k=len(ids))} & set(ids[:3])
    files = artifacts.read_manifest(folder)["files"]
    assert files == {
        name: digest
        for name, digest in artifacts.hash_files(folder).items()
        if name != "manifest.json"
    }
    result = command("delete", "--run", run)
    assert "name at least one ID" in result.output
    result = command("delete", "nothing", "--run", run)
    assert "has no item 'nothing' among its" in str(result.exception)
    shutil.rmtree(run)


def test_deletions_at_once_are_done_one_after_the_other(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "demo"
    gone = unpack(run).collection.ids[:4]
    artifact = run / "artifacts" / "index"
    write_manifest(artifact)
    children = []
    for item_id in gone:
        children.append(os.fork())
        if children[-1] == 0:
            os._exit(command("delete", item_id, "--run", run).exit_code)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(
        gone
    )
    collection = Collection.open(run / "artifacts" / "collection")
    assert {
        collection.ids[row] for row in range(len(collection)) if collection.deleted[row]
    } == set(gone)
    assert not {hit.id for hit in bifocal.load(run).search("a red star", k=len(collection))} & set(
        gone
    )
    artifacts.check_files(artifact)
    shutil.rmtree(run)
