"""What does 'dvc repro' cost, beside Kedro and bare processes?

    make peers ONLY=orchestration

CPU time of the first three commands of the pipeline with tests/small.yaml: the versions of
packages, the dataset and its texts. DVC compares versions and code, and keeps all outputs in its
cache. Kedro runs the same commands as nodes, one after another, and keeps nothing. The floor is
bare processes.
"""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from benchmarks.common import ROOT, Report
from benchmarks.peers.compare import compare, write
from benchmarks.peers.start import children_seconds

RUN, STAGES = "runs/small", ("packages", "prepare_dataset", "vectorize_captions")
NODES = """
import json, subprocess, sys
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import node, pipeline
from kedro.runner import SequentialRunner
def run(command):
    def call(previous):
        subprocess.run(command, shell=True, check=True)
        return previous
    return call
commands = json.loads(sys.argv[1])
nodes = [node(run(one), str(place), str(place + 1), name=f"stage{place}") for place, one in enumerate(commands)]
SequentialRunner().run(pipeline(nodes), DataCatalog({"0": MemoryDataset(0)}))
"""


def main() -> None:
    """Compare the runs."""
    report = Report("peers.orchestration")
    with TemporaryDirectory() as name:
        checkout = Path(name) / "bifocal"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        shutil.copy(ROOT / "tests" / "small.yaml", checkout)
        python = partial(
            subprocess.run,
            cwd=checkout,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        python([sys.executable, "-m", "pipelines", "render", "--recipe", "small.yaml"])
        stages = yaml.safe_load((checkout / RUN / "dvc.yaml").read_text())["stages"]
        commands = [stages[stage]["cmd"].replace("python", sys.executable, 1) for stage in STAGES]

        def dvc() -> None:
            clear()
            python([sys.executable, "-m", "dvc", "repro", f"{RUN}/dvc.yaml:{STAGES[-1]}"])

        def kedro() -> None:
            clear()
            python([sys.executable, "-c", NODES, json.dumps(commands)])

        def bare() -> None:
            clear()
            for command in commands:
                python(command, shell=True)

        def clear() -> None:
            for folder in (checkout / RUN / "artifacts", checkout / ".dvc" / "cache"):
                shutil.rmtree(folder, ignore_errors=True)
            (checkout / RUN / "dvc.lock").unlink(missing_ok=True)

        for peer, theirs in {"kedro": kedro, "dvc as bare processes (floor)": bare}.items():
            compare(report, f"{len(STAGES)} stages", peer, dvc, theirs, clock=children_seconds)
    write(report)


if __name__ == "__main__":
    main()
