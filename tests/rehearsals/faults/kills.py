"""kill -9 of the process group at random moments of whole pipelines: the same bytes after a rerun.

A command is killed after a random time of work and started again at once, until it ends by itself;
then its artifacts are compared with an undisturbed run's, and the next round begins without any
file of this round. Finished rounds are kept in runs/faults, and a second start continues with the
code of the first: delete the folder after a change. 'make faults' runs this file, which takes 20
minutes of one core.
"""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from pipelines.dvc import dvc_components
from tests.rehearsals.faults.checkout import RECIPE, ROOT, Checkout, digests
from tests.rehearsals.faults.processes import work_seconds
from tests.rehearsals.faults.registry import check_registry
from tests.rehearsals.faults.rows import Record, record

KILLS = int(os.environ.get("BIFOCAL_TEST_KILLS", "50"))
"""Kills of each command."""
LONGEST_WORK = 0.4
"""Longest work until a kill, relative to an undisturbed run: every stage needs less, so each round
ends some time."""
DVC = (
    "sh",
    "-c",
    f"python -m pipelines render --dvc-only --recipe {RECIPE} && dvc repro runs/small/dvc.yaml",
)
"""As 'make repro' has it: the first command repairs what a killed DVC leaves."""
KUBEFLOW = ("python", "-m", "pipelines", "run", "--recipe", RECIPE, "--folder", "runs/kubeflow")
STARTED = re.compile(r"^(?:Running stage '.*:([\w-]+)'|([\w-]+): attempt)", re.MULTILINE)
HOME = ROOT / "runs" / "faults"


class Rounds:
    """Rounds of one command, with their results in a file.

    Args:
        name: of the file and of the checkout.
        outputs: folder of each artifact that is compared, below ``runs``.
    """

    def __init__(self, name: str, command: tuple[str, ...], outputs: list[str]) -> None:
        self.command, self.file = command, HOME / f"{name}.json"
        self.checkout = Checkout(HOME / name)
        self.outputs = [self.checkout.folder / "runs" / output for output in outputs]
        if not self.file.is_file():
            self.checkout.copy()
            self.results: dict[str, Any] = {
                "kills": 0,
                "rounds": 0,
                "moments": {},
                **self._undisturbed(),
            }
            self._save()
        self.results = json.loads(self.file.read_text())

    def _undisturbed(self) -> dict[str, Any]:
        self._begin()
        seconds = 0.0
        with self.checkout.started(*self.command) as process:
            while process.poll() is None:
                seconds = max(seconds, work_seconds(process.pid))
                time.sleep(0.1)
        assert process.returncode == 0, self.checkout.output()[-3000:]
        return {"seconds": seconds, "expected": digests(self.outputs)}

    def _save(self) -> None:
        self.file.write_text(json.dumps(self.results, indent=1))

    def _begin(self) -> None:
        self.checkout.reset()
        self.checkout.run("python", "-m", "pipelines", "render", "--dvc-only", "--recipe", RECIPE)

    def play(self, moments: random.Random, most: int) -> None:
        """Start and kill the command until it ends by itself, at most ``most`` times; compare its
        artifacts."""
        self._begin()
        killed: Counter[str] = Counter()
        while killed.total() < most:
            limit = moments.uniform(0.0, LONGEST_WORK * self.results["seconds"])
            with self.checkout.started(*self.command) as process:
                while process.poll() is None and work_seconds(process.pid) < limit:
                    time.sleep(0.05)  # reading all processes takes milliseconds
                code = process.poll()
            if code is not None:
                break
            started = STARTED.findall(self.checkout.output())
            killed["".join(started[-1]).replace("-", "_") if started else "start"] += 1
        else:
            with self.checkout.started(*self.command) as process:
                code = process.wait()
        assert code == 0, f"after kills at {dict(killed)}:\n{self.checkout.output()[-3000:]}"
        check_equal(digests(self.outputs), self.results["expected"], killed)
        partial = [
            *self.checkout.folder.glob("runs/**/*.partial"),
            *self.checkout.folder.glob("runs/*/pods/*"),
        ]
        assert not partial, f"files of a killed stage are left: {partial}"
        self.results["moments"] = dict(killed + Counter(self.results["moments"]))
        self.results["kills"] += killed.total()
        self.results["rounds"] += 1
        self._save()


def check_equal(
    actual: Mapping[str, str], expected: Mapping[str, str], killed: Mapping[str, int]
) -> None:
    """Check that two runs have the same files with the same bytes."""
    differing = sorted(name for name in actual | expected if actual.get(name) != expected.get(name))
    assert not differing, f"{differing} differ after kills at {dict(killed)}"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["dvc", "kubeflow"])
def test_killed_pipeline_has_the_same_bytes_after_a_rerun(
    name: str, record_property: Record
) -> None:
    outputs = [(stage.name, output) for stage in dvc_components() for output in stage.outputs]
    if name == "dvc":
        rounds = Rounds(name, DVC, [f"small/artifacts/{output}" for _, output in outputs])
    else:
        rounds = Rounds(
            name,
            KUBEFLOW,
            [f"kubeflow/{stage.replace('_', '-')}/{output}" for stage, output in outputs],
        )
    while rounds.results["kills"] < KILLS:
        rounds.play(random.Random(rounds.results["rounds"]), KILLS - rounds.results["kills"])
        if name == "kubeflow":
            check_registry(rounds.checkout, versions=1)
    moments = ", ".join(
        f"{stage} {count}" for stage, count in sorted(rounds.results["moments"].items())
    )
    record(
        record_property,
        "`kill -9` of the process group at a random moment",
        "`dvc repro`" if name == "dvc" else "`pipelines run`",
        f"started again: the bytes of an undisturbed run ({rounds.results['rounds']} times to "
        f"the end; running at the kill: {moments})",
        trials=rounds.results["kills"],
    )
