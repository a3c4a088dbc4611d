"""``bifocal delete``."""

import json
import shutil
from pathlib import Path

import bifocal
from bifocal.search.collection.collection import Collection
from pipelines.app.demo_folder import unpack
from runtime import artifacts
from tests.pipelines.app.conftest import Command


def test_deleted_images_are_in_no_file_of_the_run(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "demo"
    folder = run / "artifacts" / "collection"
    ids = unpack(run).collection.ids
    vectors = [Collection.open(folder).vectors[row].tobytes() for row in range(3)]
    artifacts.write_json(folder / "manifest.json", {"schema_version": 1, "metrics": {}, "files": {}})
    # As 'bifocal serve --deletions' writes it.
    (tmp_path / "deleted.jsonl").write_text("".join(json.dumps(item_id) + "\n" for item_id in ids[1:3]))
    result = command("delete", ids[0], "--run", run, "--list", tmp_path / "deleted.jsonl")
    assert result.exit_code == 0, result.output
    assert f"deleted 3: {len(ids) - 3} items and 3 tombstones are left" in result.output
    for file in (path for path in run.rglob("*") if path.is_file()):
        assert not any(vector in file.read_bytes() for vector in vectors), file
    assert not {hit.image_id for hit in bifocal.load(run).search("a red star", k=len(ids))} & set(ids[:3])
    files = artifacts.read_manifest(folder)["files"]
    assert files == {name: digest for name, digest in artifacts.hash_files(folder).items() if name != "manifest.json"}
    result = command("delete", "--run", run)
    assert "name at least one ID" in result.output
    result = command("delete", "nothing", "--run", run)
    assert "has no item 'nothing' among its" in str(result.exception)
    shutil.rmtree(run)
