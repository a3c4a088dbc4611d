"""The image 'serve' in a real container: size, contents, and 'bifocal serve'; run by 'make
containers-test'."""

import json
import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.app.demo import unpack
from tests.bifocal.serving.server import JSON, Server
from tests.mlflow_server import free_port

ROOT = Path(__file__).parents[1]
IMAGE = json.loads(Path(os.environ["IMAGES"]).read_text())["serve"]
MAX_BYTES = 1_300_000_000
"""Largest image: its own and its base's files, uncompressed."""
CONTENTS = """
command -v gcc cc make uv pip pip3 g++
find /run/secrets /tools /cache -type f 2> /dev/null
python -c "from importlib.util import find_spec; print([n for n in ('torch', 'torchvision', 'timm') if find_spec(n)])"
"""
SENTENCE = "three red stars on a beach"
STATE = (
    "cat /proc/1/status; touch /app/file /demo/file /opt/file; touch /tmp/file && echo "
    "writable: /tmp"
)


class Container(Server):
    """A container of ``bifocal serve`` with the demo; its process is 'podman run'.

    Args:
        folder: the demo is written there, and the log.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(free_port(), folder / "log.jsonl")
        self.model = unpack(folder / "demo")

    @property
    def name(self) -> str:
        """Name of the container."""
        return f"bifocal-serve-{self.port}"


def podman(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of podman."""
    return subprocess.run(("podman", *arguments), capture_output=True, text=True, check=False)


def documented_command() -> list[str]:
    """Return the command of docs/serving_operation.md that runs the service in a container."""
    text = (ROOT / "docs" / "serving_operation.md").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^docker run .*$", text, flags=re.MULTILINE)
    return shlex.split(line)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The command of the page, with the demo, on a free port of this machine's network."""
    running = Container(tmp_path_factory.mktemp("serve"))
    changes = {
        "docker": "podman",
        "./bifocal-demo:/demo:ro": f"{running.model.directory}:/demo:ro",
        "localhost/bifocal:serve": IMAGE,
        "--publish": "--network",
        "8080:8080": "host",
    }
    command = [changes.get(word, word) for word in documented_command()]
    assert set(changes.values()) <= set(command)
    command[2:2] = ["--rm", "--name", running.name, "--env", f"PORT={running.port}"]
    # Podman asks systemd to repeat the health check; this machine may have none.
    environment = os.environ | {"DISABLE_HC_SYSTEMD": "true"}
    with running.log.open("wb") as log:
        running.process = subprocess.Popen(
            [*command, "--port", str(running.port)], env=environment, stderr=log
        )
    try:
        running.wait_until_ready()
        yield running
    finally:
        podman("rm", "--force", running.name)
        running.process.wait(60)


def test_the_image_is_small_and_has_no_torch_and_no_build_tools() -> None:
    (image,) = json.loads(podman("image", "inspect", IMAGE).stdout)
    assert image["Config"]["User"] == "1000:1000"
    assert image["Size"] <= MAX_BYTES
    assert podman("run", "--rm", IMAGE, "sh", "-c", CONTENTS).stdout == "[]\n"


def test_the_process_has_no_rights_and_no_file_system_to_write_to(container: Container) -> None:
    done = podman("exec", container.name, "sh", "-c", STATE)
    status = dict(re.findall(r"^(\w+):\s+(\S+)", done.stdout, flags=re.MULTILINE))
    assert status["Uid"] == status["Gid"] == "1000"
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["writable"] == "/tmp"
    assert done.stderr.count("Read-only file system") == 3


def test_the_service_answers_searches_and_its_page(container: Container) -> None:
    found = container.search(text=SENTENCE, k=3)["results"]
    assert [hit["id"] for hit in found] == [hit.id for hit in container.model.search(SENTENCE, 3)]
    status, picture, _ = container.get(f"/api/v1/thumbnail?id={found[0]['id']}")
    assert status == 200
    status, body, _ = container.request(
        "POST", "/api/v1/search/image", picture, {"content-type": "image/jpeg"}
    )
    assert status == 200
    assert json.loads(body)["results"][0]["id"] == found[0]["id"]
    assert container.post("explain", {"id": found[0]["id"], "text": "three red stars"})["phrases"]
    status, page, answer = container.get("/")
    assert status == 200
    assert answer.getheader("content-type", "").startswith("text/html")
    files = re.findall(rb'(?:src|href)="(page/[\w.]+)"', page)
    assert {b"page/page.css", b"page/page.js"} <= {*files}
    for address in files:
        assert container.get(f"/{address.decode()}")[0] == 200
    assert podman("healthcheck", "run", container.name).returncode == 0


def test_a_stopped_container_answers_the_request_in_progress(container: Container) -> None:
    body = json.dumps({"text": "a red star", "k": 1}).encode()
    with socket.create_connection(("127.0.0.1", container.port), timeout=60) as connection:
        head = (
            "POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
            f"{JSON['content-type']}\r\n"
        )
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:9])
        time.sleep(0.3)
        stop = subprocess.Popen(
            ("podman", "stop", "--time", "30", container.name), stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while container.accepts():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        connection.sendall(body[9:])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert stop.wait(60) == 0
    assert container.process is not None
    assert container.process.wait(60) == 0  # 137 would be SIGKILL
    log = container.log.read_text()
    assert "Application shutdown complete." in log
    assert "Traceback" not in log
