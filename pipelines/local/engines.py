"""Engines: run one step of a compiled pipeline as a process of this machine, or as a container."""

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
from runtime.artifacts import code_hash

ROOT = Path(__file__).parents[2]
# The owner of the repository may differ from the user in the container.
TRUST_REPOSITORY = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


class Engine(Protocol):
    """Runs one step."""

    def run(self, spec: Mapping[str, Any], command: list[str], timeout: float, log: Path) -> int:
        """Run ``command`` for at most ``timeout`` seconds, append its output to ``log``, and return its exit code.

        Args:
            spec: the compiled container: image, environment.
        """

    def version(self, spec: Mapping[str, Any]) -> str:
        """Return a fingerprint of the code that the step would run."""

    def stop(self) -> None:
        """Kill the running steps."""


@dataclass
class HostEngine:
    """Runs steps as processes of this machine, with the code of this checkout.

    Args:
        environment: variables that replace the compiled ones, which name the servers of the cluster.
    """

    environment: Mapping[str, str]
    _process_ids: set[int] = field(default_factory=set, init=False)

    def run(self, spec: Mapping[str, Any], command: list[str], timeout: float, log: Path) -> int:
        """Run ``command`` with this Python; kill it and its children after ``timeout`` seconds."""
        process = subprocess.Popen(
            [sys.executable, *command[1:]],
            cwd=ROOT,
            env={**os.environ, **_environment(spec), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timer = threading.Timer(min(timeout, threading.TIMEOUT_MAX), os.killpg, (process.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        self._process_ids.add(process.pid)
        try:
            assert process.stdout is not None  # it is a pipe
            _tee(process.stdout, log)
            return process.wait()
        finally:
            timer.cancel()
            self._process_ids.discard(process.pid)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def version(self, spec: Mapping[str, Any]) -> str:
        """Return the hash of the step's code in this checkout."""
        *_, step = spec["command"]
        return code_hash(ROOT, catalog.all_components()[step].all_code_paths)

    def stop(self) -> None:
        """Kill the running steps and their children: Ctrl-C does not reach their process groups."""
        for process_id in list(self._process_ids):
            with suppress(ProcessLookupError):  # the process has ended meanwhile
                os.killpg(process_id, signal.SIGKILL)


class ContainerEngine:
    """Runs steps as containers of docker, or of podman (``DOCKER_HOST=unix:///run/podman/podman.sock``).

    Containers share the network of this machine, so they reach a local MLflow or S3 server. They run as the calling
    user.

    Args:
        environment: variables that replace the compiled ones, which name the servers of the cluster.
        folder: folder of the run, mounted at the same path.
        repository: git checkout, mounted read-only at the same path.

    Raises:
        ValueError: no docker API answers at ``DOCKER_HOST``.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, repository: Path) -> None:
        self.environment = {**environment, **TRUST_REPOSITORY}
        self._running: set[Container] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self.volumes = {
            str(repository.resolve()): {"bind": str(repository.resolve()), "mode": "ro"},
            str(folder.resolve()): {"bind": str(folder.resolve()), "mode": "rw"},
        }
        try:
            # No request timeout: a step may print nothing for hours.
            self.client = docker.from_env(timeout=None)
        except DockerException as error:
            host = os.environ.get("DOCKER_HOST", "the default socket")
            raise ValueError(
                f"no docker API answers at {host} ({error}): start docker, or run 'podman system service --time=0 "
                "unix:///run/podman/podman.sock' and export DOCKER_HOST=unix:///run/podman/podman.sock"
            ) from error

    def run(self, spec: Mapping[str, Any], command: list[str], timeout: float, log: Path) -> int:
        """Run ``command`` in a new container; kill it after ``timeout`` seconds, and remove it in any case."""
        try:
            container = self.client.containers.create(
                spec["image"],
                command[1:],
                entrypoint=command[:1],
                environment={**_environment(spec), **self.environment},
                volumes=self.volumes,
                user=f"{os.getuid()}:{os.getgid()}",
                network_mode="host",
                shm_size="1g",
            )
        except DockerException as error:
            return _fail(
                log, f"cannot create a container of {spec['image']}: {error}; 'python containers/build.py' builds it"
            )
        timer = threading.Timer(min(timeout, threading.TIMEOUT_MAX), _kill, (container,))
        timer.daemon = True
        self._running.add(container)
        try:
            container.start()
            timer.start()
            _tee(container.logs(stream=True, follow=True), log)
            return int(container.wait()["StatusCode"])
        except DockerException as error:
            return _fail(log, f"the container did not run: {error}")
        finally:
            timer.cancel()
            self._running.discard(container)
            container.remove(force=True)

    def version(self, spec: Mapping[str, Any]) -> str:
        """Return the id of the image: its name stays the same after a new build. "" if there is no image."""
        with suppress(DockerException):
            return str(self.client.images.get(spec["image"]).id)
        return ""

    def stop(self) -> None:
        """Kill the running containers."""
        for container in list(self._running):
            _kill(container)


def _kill(container: Container) -> None:
    with suppress(DockerException):  # the container has ended meanwhile
        container.kill()


def _fail(log: Path, message: str) -> int:
    """Log ``message`` like the output of a failed step; return its exit code."""
    _tee([f"{message}\n".encode()], log)
    return 1


def _environment(spec: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in spec.get("env", [])}


def _tee(lines: Iterable[bytes], log: Path) -> None:
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)
