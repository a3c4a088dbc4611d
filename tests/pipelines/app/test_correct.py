"""``bifocal correct``."""

from pathlib import Path

from bifocal.datasets.corrections import read_corrections
from pipelines.app.demo import unpack
from tests.pipelines.app.conftest import Command


def test_corrections_are_beside_the_collection(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "demo"
    first, second, *_ = unpack(run).collection.ids
    for options in ((first, "a carrot"), (second, "a carrot", "--not")):
        done = command("correct", *options, "--run", run)
        assert done.exit_code == 0, done.output
    found = {(first, "a carrot"): True, (second, "a carrot"): False}
    assert read_corrections(run / "corrections.csv") == (found, [])
    done = command("correct", f"{first}x", "a carrot", "--run", run)
    assert done.exit_code == 1
    assert f"has no item '{first}x'; did you mean '{first}'?" in str(done.exception)
    assert command("correct", first, " ", "--run", run).exit_code == 1
