"""The page of two losses, typed in a clone with small parameters."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from runtime.parameters import dump_yaml, load
from tests.docs.blocks import ROOT, blocks, commands
from tests.docs.worlds import environment, run, write_clone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PAGE = "docs/howto/compare.md"


def test_a_researcher_gets_a_verdict(tmp_path: Path) -> None:
    write_clone(tmp_path)
    small = load(tmp_path / "params.yaml", [ROOT / "tests" / "small.yaml"])
    (tmp_path / "params.yaml").write_text(dump_yaml(small))
    (tmp_path / "recipes" / "mine").mkdir()
    found = list(blocks(PAGE))
    for block in found:
        if block.mark == "file":
            (tmp_path / block.name).write_text(block.text)
    (typed,) = (line for block in found if block.language == "bash" for line in commands(block))
    assert typed.startswith("python -m pipelines compare ")
    typed = typed.replace("--seeds 3", "--seeds 2")
    first = (
        tmp_path
        / "runs"
        / "mine"
        / "infonce"
        / "seed-1"
        / "artifacts"
        / "embedding"
        / "manifest.json"
    )
    variables = environment(os.environ, tmp_path)
    with subprocess.Popen(
        typed.split(), cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL
    ) as killed:
        while not first.is_file() and killed.poll() is None:
            time.sleep(0.1)
        killed.send_signal(signal.SIGKILL)
    trained = first.stat().st_mtime_ns
    run("bash", f"{typed} > result.txt\n", tmp_path)
    assert first.stat().st_mtime_ns == trained
    *_, verdict, page = (tmp_path / "result.txt").read_text().splitlines()
    assert verdict.startswith(
        ("loss finds", "no difference between loss and infonce can be seen with 2 seeds")
    )
    assert "<circle" in (tmp_path / page).read_text()
    shared = tmp_path / "runs" / "mine" / "loss" / "seed-2" / "artifacts" / "features"
    assert shared.resolve() == first.parents[1] / "features"
    seed = yaml.safe_load(
        (tmp_path / "runs" / "mine" / "loss" / "seed-2" / "params.yaml").read_text()
    )
    assert seed["train_embedding"]["phases"][0]["loss"] == {
        "name": "my_losses:MyLoss",
        "scale": 10.0,
    }
