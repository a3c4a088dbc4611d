"""The image of the stages in real containers; run by 'make containers-test'."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import boto3
import pytest
from moto.server import ThreadedMotoServer

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.local.container_engine import ContainerEngine
from pipelines.local.engine import Exit, Pod
from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from runtime import parameters

ROOT = Path(__file__).parents[1]
DIGEST = json.loads(Path(os.environ["IMAGES"]).read_text())["cpu"]
VALUES = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
USER = 12345


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Server of 'make mlflow' on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("mlflow")
    command = ["make", "--silent", "mlflow", f"MLFLOW_PORT={port}", f"MLFLOW_FILES={folder}/files"]
    environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/mlflow.db"}
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 180
    while True:
        assert server.poll() is None, (folder / "log.txt").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "log.txt").read_text()[-3000:]
        try:
            with urlopen(f"{address}/health", timeout=5):
                break
        except (URLError, OSError):
            time.sleep(0.5)
    yield address
    os.killpg(server.pid, 15)
    server.wait()


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Variables of an S3 server with an empty bucket, ``s3://bucket``."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    keys = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    bucket_client(endpoint).create_bucket(Bucket="bucket")
    yield {"AWS_ENDPOINT_URL": endpoint, **keys}
    server.stop()


def bucket_client(endpoint: str) -> Any:
    keys = {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "region_name": "us-east-1",
    }
    return boto3.client("s3", endpoint_url=endpoint, **keys)


class KillingEngine(ContainerEngine):
    """Kills the first container of ``train_embedding`` after its first checkpoint is on S3."""

    killed = False

    def __init__(self, environment: Mapping[str, str], s3: Mapping[str, str]) -> None:
        super().__init__({**environment, **s3, "BIFOCAL_CHECKPOINT_MINUTES": "0"}, ROOT, user=USER)
        self.bucket = bucket_client(s3["AWS_ENDPOINT_URL"])

    def run(self, pod: Pod) -> Exit:
        if "train_embedding" in pod.command and not self.killed:
            threading.Thread(target=self.kill, daemon=True).start()
        return super().run(pod)

    def kill(self) -> None:
        previous = self.checkpoints()
        while self.checkpoints() <= previous:
            time.sleep(0.05)
        self.killed = True
        (container,) = self._running
        container.kill()

    def checkpoints(self) -> set[str]:
        """Return the complete copies of checkpoints: the index is uploaded last."""
        found = self.bucket.list_objects_v2(Bucket="bucket", Prefix="checkpoints/").get(
            "Contents", []
        )
        return {entry["Key"] for entry in found if entry["Key"].endswith("/index.json")}


def run_python(folder: Path, program: str, timeout: float = 300.0) -> tuple[Exit, str]:
    """Run a Python program in a container; return its end and output."""
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    (folder / "pod").mkdir(exist_ok=True)
    engine = ContainerEngine({"GREETING": "hello"}, ROOT)
    ended = engine.run(Pod(folder / "pod", (), DIGEST, ["python", "-c", program], {}, timeout, log))
    return ended, log.read_text()


def test_engine_returns_the_exit_code_of_a_container(tmp_path: Path) -> None:
    assert run_python(
        tmp_path, "import os; print(os.environ['GREETING']); raise SystemExit(3)"
    ) == (Exit(3), "hello\n")


def test_engine_kills_and_removes_a_container_after_the_timeout(tmp_path: Path) -> None:
    start = time.monotonic()
    program = "import time; print('began', flush=True); time.sleep(600)"
    assert run_python(tmp_path, program, timeout=10.0)[0] == Exit(137, late=True)
    assert time.monotonic() - start < 300
    engine = ContainerEngine({}, ROOT)
    containers = engine.client.containers.list(all=True)
    assert not [container for container in containers if "time.sleep(600)" in str(container.attrs)]


def test_engine_fails_on_a_missing_image(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    pod = Pod(
        tmp_path / "pod", (), "localhost/bifocal:none", ["python"], {}, 60.0, tmp_path / "log.txt"
    )
    assert ContainerEngine({}, ROOT).run(pod) == Exit(1)
    assert "'python containers/build.py' builds it" in (tmp_path / "log.txt").read_text()


def test_image_runs_as_a_user_and_has_no_build_tools_or_secrets() -> None:
    image = ContainerEngine({}, ROOT).client.images.get(DIGEST)
    assert image.attrs["Config"]["User"] == "1000:1000"
    assert not [variable for variable in image.attrs["Config"]["Env"] if "CERT" in variable]
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", image.labels["org.opencontainers.image.revision"])
    secrets = "find /run/secrets /tools /cache -type f 2> /dev/null || true"
    shell = f"id -u; command -v gcc cc make uv pip pip3 g++ || true; {secrets}"
    done = subprocess.run(
        ["podman", "run", "--rm", DIGEST, "sh", "-c", shell],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1000\n"


def compile_small(values: Mapping[str, Any], checkpoints: str | None) -> str:
    changes = {"push": False, "checkpoints": checkpoints}
    cluster = resources.load(images={"cpu": DIGEST, "gpu": DIGEST}).model_copy(update=changes)
    return kubeflow.compile_pipeline(values, cluster, "a" * 40)


def test_the_small_pipeline_runs_in_containers_of_an_arbitrary_user(
    tmp_path: Path, mlflow: str
) -> None:
    engine = ContainerEngine(
        {"MLFLOW_TRACKING_URI": mlflow, "OMP_NUM_THREADS": "2"}, ROOT, user=USER
    )
    text = compile_small(VALUES, None)
    states = LocalRun(text, tmp_path / "run", engine, sleep=lambda seconds: None).execute()
    assert set(states.values()) == {TaskState.COMPLETE}, logs(tmp_path)
    registration = json.loads(
        (tmp_path / "run/register-model/registration/registration.json").read_text()
    )
    assert registration["version"] == 1
    again = LocalRun(text, tmp_path / "run", engine).execute()
    uncached = {name for name, state in again.items() if state is not TaskState.CACHED}
    assert uncached == {"fingerprint", "notify", "register-model", "release", "promote"}


def test_a_killed_training_goes_on_in_a_new_container(
    tmp_path: Path, mlflow: str, s3: dict[str, str]
) -> None:
    values = deepcopy(VALUES)
    values["train_embedding"]["phases"][0]["epochs"] = 60
    text = compile_small(values, "s3://bucket/checkpoints")
    engine = KillingEngine({"MLFLOW_TRACKING_URI": mlflow, "OMP_NUM_THREADS": "2"}, s3)
    states = LocalRun(text, tmp_path / "run", engine, sleep=lambda seconds: None).execute()
    assert set(states.values()) == {TaskState.COMPLETE}, logs(tmp_path)
    attempts = sorted(tmp_path.glob("run/train-embedding/log-*.txt"))
    assert len(attempts) == 2
    assert "resuming at epoch" in attempts[1].read_text()


def logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("run/*/log-*.txt")))


def test_run_command_fails_if_a_step_fails(tmp_path: Path, mlflow: str) -> None:
    recipe = tmp_path / "wrong.yaml"
    recipe.write_text("prepare_dataset: {corpus: {name: Flickr8k, root: s3://nowhere/at-all}}\n")
    images = tmp_path / "images.json"
    images.write_text(json.dumps({"cpu": DIGEST, "gpu": DIGEST}))
    command = [
        *(
            sys.executable,
            "-m",
            "pipelines",
            "run",
            "--runner",
            "container",
            "--recipe",
            str(recipe),
        ),
        *("--images", str(images), "--folder", str(tmp_path / "run")),
    ]
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": mlflow,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    environment |= {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "fingerprint failed" in done.stderr
    assert "train-embedding: omitted" in done.stdout
