"""Wait until a run of Kubeflow Pipelines ends, and print its final state.

KFP_ENDPOINT=http://localhost:8888 python deploy/kind/wait_for_run.py RUN_ID SECONDS
"""

import os
import sys

import kfp


def main(run_id: str, seconds: str) -> None:
    """Print the state of the run, such as SUCCEEDED."""
    client = kfp.Client(host=os.environ["KFP_ENDPOINT"])
    run = client.wait_for_run_completion(run_id, timeout=int(seconds), sleep_duration=10)
    sys.stdout.write(f"{run.state}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
