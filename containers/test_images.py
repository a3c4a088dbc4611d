"""The images in real containers, by 'make containers-test'."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.local.engines import ContainerEngine
from pipelines.local.runner import Run
from pipelines.local.step import State
from runtime import parameters

ROOT = Path(__file__).parents[1]
DIGEST = json.loads(Path(os.environ["IMAGES"]).read_text())["cpu"]
VALUES = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of 'make mlflow', on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("mlflow")
    values = {"PORT": port, "STORE": f"sqlite:///{folder}/mlflow.db", "FILES": folder / "files"}
    command = ["make", "--silent", "mlflow", *(f"MLFLOW_{name}={value}" for name, value in values.items())]
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
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


def said(folder: Path, program: str, seconds: float = 300.0) -> tuple[int, str]:
    """Exit code and output of a Python program in a container."""
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    engine = ContainerEngine({"GREETING": "hello"}, folder, ROOT)
    code = engine.run({"image": DIGEST}, ["python", "-c", program], seconds, log)
    return code, log.read_text()


def test_a_container_that_fails_is_a_failure(tmp_path: Path) -> None:
    assert said(tmp_path, "import os; print(os.environ['GREETING']); raise SystemExit(3)") == (3, "hello\n")


def test_a_container_that_takes_too_long_is_killed_and_none_is_left(tmp_path: Path) -> None:
    began = time.monotonic()
    assert said(tmp_path, "import time; print('began', flush=True); time.sleep(600)", seconds=10.0)[0] == 137
    assert time.monotonic() - began < 300
    engine = ContainerEngine({}, tmp_path, ROOT)
    assert not [box for box in engine.client.containers.list(all=True) if "time.sleep(600)" in str(box.attrs)]


def test_an_image_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    engine = ContainerEngine({}, tmp_path, ROOT)
    assert engine.run({"image": "localhost/bifocal:none"}, ["python"], 60.0, tmp_path / "log.txt") == 1
    assert "'python containers/build.py' builds it" in (tmp_path / "log.txt").read_text()


def test_the_image_is_nobodys_root_and_holds_no_build_tools() -> None:
    image = ContainerEngine({}, Path("/tmp"), ROOT).client.images.get(DIGEST)
    assert image.attrs["Config"]["User"] == "1000:1000"
    assert not [variable for variable in image.attrs["Config"]["Env"] if "CERT" in variable]
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", image.labels["org.opencontainers.image.revision"])
    left = "find /run/secrets /tools /cache -type f 2> /dev/null || true"
    shell = f"id -u; command -v gcc cc make uv pip pip3 g++ || true; {left}"
    done = subprocess.run(
        ["podman", "run", "--rm", DIGEST, "sh", "-c", shell], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1000\n"


def test_the_small_pipeline_runs_in_containers(tmp_path: Path, mlflow: str) -> None:
    given = resources.read(images={"cpu": DIGEST, "gpu": DIGEST}).model_copy(update={"record": False})
    engine = ContainerEngine({"MLFLOW_TRACKING_URI": mlflow, "OMP_NUM_THREADS": "2"}, tmp_path / "run", ROOT)
    text = kubeflow.compile_pipeline(VALUES, given, "a" * 40)
    states = Run(text, tmp_path / "run", engine, sleep=lambda seconds: None).start()
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("run/*/log.txt")))
    assert set(states.values()) == {State.SUCCEEDED}, logs
    registration = json.loads((tmp_path / "run/register-model/registration/registration.json").read_text())
    assert registration["version"] == 1
    again = Run(text, tmp_path / "run", engine).start()
    assert {state for name, state in again.items() if name != "notify"} == {State.REUSED}


def test_the_command_fails_where_a_step_fails(tmp_path: Path, mlflow: str) -> None:
    recipe = tmp_path / "wrong.yaml"
    recipe.write_text("prepare_dataset: {corpus: {name: Flickr8k, root: s3://nowhere/at-all}}\n")
    images = tmp_path / "images.json"
    images.write_text(json.dumps({"cpu": DIGEST, "gpu": DIGEST}))
    command = [
        *(sys.executable, "-m", "pipelines", "run", "--runner", "container", "--recipe", str(recipe)),
        *("--images", str(images), "--folder", str(tmp_path / "run")),
    ]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": mlflow, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "prepare-dataset did not succeed" in done.stderr
    assert "train-embedding: skipped" in done.stdout
