"""Several promotions at once."""

import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from bifocal.datasets import Dataset
from tests.components.cluster.versions import POLICY, ROOT, decisions, number_of, register

PROMOTERS = """
import os, sys, traceback
from pathlib import Path
from components.cluster.promote import promote
from components.cluster.policies import PromotionPolicy
policy = PromotionPolicy.model_validate_json(sys.argv[1])
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        try:
            promote(policy.model_copy(update={"candidate": f"c{number}"}), Path(sys.argv[3]), Path("none"))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
"""


@pytest.mark.slow
def test_concurrent_promotions_leave_the_best_version_as_champion(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    client, noises = mlflow.MlflowClient(), (0.8, 0.05, 2.0)
    numbers = [register(tmp_path / str(noise), dataset, noise) for noise in noises]
    for index, number in enumerate(numbers):
        client.set_registered_model_alias(POLICY.model, f"c{index}", str(number))
    policy = POLICY.model_copy(update={"floors": {"recall_sum": 1.0}, "looks": 20})
    arguments = [policy.model_dump_json(), str(len(noises)), str(artifacts / "dataset")]
    done = subprocess.run(
        [sys.executable, "-c", PROMOTERS, *arguments],
        env={
            "MLFLOW_TRACKING_URI": store,
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert number_of(POLICY.champion) == numbers[1]
    for number in numbers:
        assert decisions(number)[0]["promotion"] in ("yes", "no")
    previous = decisions(numbers[1])[0][
        "promotion.champion"
    ]  # "none" if the best version was promoted first
    assert number_of(POLICY.previous) == (None if previous == "none" else int(previous))
