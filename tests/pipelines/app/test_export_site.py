"""``bifocal export-site``: what it prints, and the images that it leaves out."""

import json
from pathlib import Path

from click.testing import CliRunner

from bifocal.search.trained_model import TrainedModel
from pipelines.app import bifocal
from tests.bifocal.serving.site.static_copy import required_site_files


def test_the_command_leaves_out_deleted_images(demo: TrainedModel, tmp_path: Path) -> None:
    required_site_files()
    copy, deletions, ids = tmp_path / "copy", tmp_path / "deleted.jsonl", demo.collection.ids
    deletions.write_text("".join(json.dumps(item_id) + "\n" for item_id in ids[5:]))
    arguments = ["export-site", demo.directory, copy, "--deletions", deletions]
    done = CliRunner().invoke(bifocal, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "5 images, 5 of them with a thumbnail\n" in done.output
    assert f"-> {copy}, for a web server: python -m http.server --directory {copy}\n" in done.output
    (data,) = (copy / "data").iterdir()
    assert json.loads((data / "collection.json").read_text())["ids"] == ids[4::-1]
