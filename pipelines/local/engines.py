"""What runs one step of a compiled pipeline: a process of this machine, or a container."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import click
import docker
from docker.errors import DockerException
from docker.models.containers import Container

from components import catalog
from runtime import artifacts

ROOT = Path(__file__).parents[2]
# The repository may belong to another user than the one in the container.
TRUST = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


class Engine(Protocol):
    """What runs one step."""

    def run(self, container: Mapping[str, Any], command: list[str], seconds: float, log: Path) -> int:
        """Run ``command`` for at most ``seconds``, its output in ``log``; returns its exit code."""

    def version(self, container: Mapping[str, Any]) -> str:
        """What changes with the code that the step would run."""

    def stop(self) -> None:
        """Kill what runs."""


@dataclass
class HostEngine:
    """Steps as processes of this machine and this checkout.

    Args:
        environment: variables in the place of the compiled ones, which name the cluster's servers.
    """

    environment: Mapping[str, str]
    _running: set[int] = field(default_factory=set, init=False)

    def run(self, container: Mapping[str, Any], command: list[str], seconds: float, log: Path) -> int:
        """Run ``command`` with this Python; it is killed, with all that it started, after ``seconds``."""
        process = subprocess.Popen(
            [sys.executable, *command[1:]],
            cwd=ROOT,
            env={**os.environ, **_variables(container), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), os.killpg, (process.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        self._running.add(process.pid)
        try:
            assert process.stdout is not None  # it is a pipe
            _tee(process.stdout, log)
            return process.wait()
        finally:
            timer.cancel()
            self._running.discard(process.pid)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def version(self, container: Mapping[str, Any]) -> str:
        """Hash of the stage's code in this checkout."""
        *_, stage = container["command"]
        return artifacts.code_hash(ROOT, catalog.all_components()[stage].all_code_paths)

    def stop(self) -> None:
        """Kill what runs, with all that it started: it is in a session of its own, where no Ctrl-C reaches it."""
        for number in list(self._running):
            with suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.killpg(number, signal.SIGKILL)


class ContainerEngine:
    """Steps as containers of docker, or of podman by its socket (``DOCKER_HOST=unix:///run/podman/podman.sock``).

    They see the network of this machine, where MLflow and S3 of a rehearsal run, and belong to the user who calls.

    Args:
        environment: variables in the place of the compiled ones, which name the cluster's servers.
        folder: of the run; the containers see it under the same path.
        repository: they may read it, under the same path.

    Raises:
        ValueError: nothing answers at ``DOCKER_HOST``.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, repository: Path) -> None:
        self.environment = {**environment, **TRUST}
        self._running: set[Container] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self.volumes = {
            str(repository.resolve()): {"bind": str(repository.resolve()), "mode": "ro"},
            str(folder.resolve()): {"bind": str(folder.resolve()), "mode": "rw"},
        }
        try:
            # No time limit on a request: a step may be silent for hours.
            self.client = docker.from_env(timeout=None)
        except DockerException as error:
            where = os.environ.get("DOCKER_HOST", "its usual socket")
            raise ValueError(
                f"no docker answers at {where} ({error}): start it, or 'podman system service --time=0 "
                "unix:///run/podman/podman.sock' and export DOCKER_HOST=unix:///run/podman/podman.sock"
            ) from error

    def run(self, container: Mapping[str, Any], command: list[str], seconds: float, log: Path) -> int:
        """Run ``command`` in a container of its own, which is killed after ``seconds``, and removed in any case."""
        try:
            box = self.client.containers.create(
                container["image"],
                command[1:],
                entrypoint=command[:1],
                environment={**_variables(container), **self.environment},
                volumes=self.volumes,
                user=f"{os.getuid()}:{os.getgid()}",
                network_mode="host",
                shm_size="1g",
            )
        except DockerException as error:
            return _said(log, f"no container of {container['image']}: {error}; 'python containers/build.py' builds it")
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), _kill, (box,))
        timer.daemon = True
        self._running.add(box)
        try:
            box.start()
            timer.start()
            _tee(box.logs(stream=True, follow=True), log)
            return int(box.wait()["StatusCode"])
        except DockerException as error:
            return _said(log, f"the container did not run: {error}")
        finally:
            timer.cancel()
            self._running.discard(box)
            box.remove(force=True)

    def version(self, container: Mapping[str, Any]) -> str:
        """Id of the image, which a name keeps when another is built; empty if there is none."""
        with suppress(DockerException):
            return str(self.client.images.get(container["image"]).id)
        return ""

    def stop(self) -> None:
        """Kill the containers."""
        for box in list(self._running):
            _kill(box)


def _kill(box: Container) -> None:
    with suppress(DockerException):  # it ended by itself meanwhile
        box.kill()


def _said(log: Path, message: str) -> int:
    """Say ``message`` as a step that fails would; returns its exit code."""
    _tee([f"{message}\n".encode()], log)
    return 1


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {given["name"]: given["value"] for given in container.get("env", [])}


def _tee(lines: Iterable[bytes], log: Path) -> None:
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)
