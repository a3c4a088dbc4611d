"""Engines: run one step of a compiled pipeline as a process of this machine, or as a container."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import click
import docker
from docker.errors import DockerException
from docker.models.containers import Container

from pipelines.dvc import package_versions

ROOT = Path(__file__).parents[2]
# The owner of the repository may differ from the user in the container.
TRUST_REPOSITORY = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


@dataclass(frozen=True)
class Pod:
    """One attempt of a step.

    Attributes:
        folder: on this machine, with the folders that are mounted below / of the step.
        timeout: seconds.
        log: file that the output is appended to.
    """

    folder: Path
    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout: float
    log: Path


class Exit(NamedTuple):
    """End of a pod.

    Attributes:
        code: exit code of the step.
        reason: ``completed``, also with an error; ``deadline`` after the timeout; ``deleted`` if the pod is gone.
    """

    code: int
    reason: Literal["completed", "deadline", "deleted"] = "completed"


class Engine(Protocol):
    """Runs one step."""

    def root(self, pod: Path) -> Path:
        """Return the path at which the step sees the folder ``pod``."""

    def image(self, image: str) -> str:
        """Return the image as it enters the cache key: with its content, as a digest has it on a cluster."""

    def own(self, pod: Path) -> None:
        """Let the user of the step write to the folders of the pod."""

    def run(self, pod: Pod) -> Exit:
        """Run the command until it ends or its time is up; append its output to the log."""

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

    def root(self, pod: Path) -> Path:
        """Return ``pod``: a process sees the file system of this machine."""
        return pod

    def image(self, image: str) -> str:
        """Return the name with the versions of the installed packages; a step's code is among its arguments."""
        return f"{image} {json.dumps(package_versions(), sort_keys=True)}"

    def own(self, pod: Path) -> None:
        """Do nothing: the step runs as the calling user."""

    def run(self, pod: Pod) -> Exit:
        """Run the command with this Python; kill it and its children after the timeout.

        There is no pause between SIGTERM and SIGKILL, as in a pod of Kubeflow: SIGTERM ends the launcher at once, and
        the container with it (argo-workflows, cmd/argoexec/commands/emissary.go:235, 267).
        """
        late = threading.Event()
        process = subprocess.Popen(
            [sys.executable, *pod.command[1:]],
            cwd=ROOT,
            env={**os.environ, **pod.environment, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def kill() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(min(pod.timeout, threading.TIMEOUT_MAX), kill)
        timer.daemon = True
        timer.start()
        self._process_ids.add(process.pid)
        try:
            assert process.stdout is not None  # it is a pipe
            _tee(process.stdout, pod.log)
            return Exit(process.wait(), "deadline" if late.is_set() else "completed")
        finally:
            timer.cancel()
            self._process_ids.discard(process.pid)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def stop(self) -> None:
        """Kill the running steps and their children: Ctrl-C does not reach their process groups."""
        for process_id in list(self._process_ids):
            with suppress(ProcessLookupError):  # the process has ended meanwhile
                os.killpg(process_id, signal.SIGKILL)


class ContainerEngine:
    """Runs steps as containers of docker, or of podman (``DOCKER_HOST=unix:///run/podman/podman.sock``).

    The root file system is read-only; the pod's folders are mounted. Containers share the network of this machine, so
    they reach a local MLflow or S3 server.

    Args:
        environment: variables that replace the compiled ones, which name the servers of the cluster.
        repository: git checkout, mounted read-only at the same path.
        user: id of the user and the group of the steps; the calling user by default.

    Raises:
        ValueError: no docker API answers at ``DOCKER_HOST``.
    """

    def __init__(self, environment: Mapping[str, str], repository: Path, user: int | None = None) -> None:
        self.environment = {**environment, **TRUST_REPOSITORY}
        self.user = user
        self._running: set[Container] = set()
        path = str(repository.resolve())
        self.volumes = {path: {"bind": path, "mode": "ro"}}
        try:
            # No request timeout: a step may print nothing for hours.
            self.client = docker.from_env(timeout=None)
        except DockerException as error:
            host = os.environ.get("DOCKER_HOST", "the default socket")
            raise ValueError(
                f"no docker API answers at {host} ({error}): start docker, or run 'podman system service --time=0 "
                "unix:///run/podman/podman.sock' and export DOCKER_HOST=unix:///run/podman/podman.sock"
            ) from error

    def root(self, pod: Path) -> Path:
        """Return /: the folders of the pod are mounted there."""
        return Path("/")

    def image(self, image: str) -> str:
        """Return the id of the image: its name stays the same after a new build. The name if there is no image."""
        with suppress(DockerException):
            return str(self.client.images.get(image).id)
        return image

    def own(self, pod: Path) -> None:
        """Give the folders of the pod to the user of the steps."""
        if self.user is not None:
            give_folders(pod, self.user)

    def run(self, pod: Pod) -> Exit:
        """Run the command in a new container; kill it after the timeout, and remove it in any case."""
        user = f"{os.getuid()}:{os.getgid()}" if self.user is None else f"{self.user}:{self.user}"
        folders = {str(path): {"bind": f"/{path.name}", "mode": "rw"} for path in pod.folder.iterdir()}
        try:
            container = self.client.containers.create(
                pod.image,
                list(pod.command[1:]),
                entrypoint=list(pod.command[:1]),
                environment={**pod.environment, **self.environment},
                volumes={**self.volumes, **folders},
                user=user,
                read_only=True,
                network_mode="host",
                shm_size="1g",
            )
        except DockerException as error:
            return _fail(
                pod.log, f"cannot create a container of {pod.image}: {error}; 'python containers/build.py' builds it"
            )
        late = threading.Event()
        timer = threading.Timer(min(pod.timeout, threading.TIMEOUT_MAX), _kill, (container, late))
        timer.daemon = True
        self._running.add(container)
        try:
            container.start()
            timer.start()
            _tee(container.logs(stream=True, follow=True), pod.log)
            return Exit(int(container.wait()["StatusCode"]), "deadline" if late.is_set() else "completed")
        except DockerException as error:
            return _fail(pod.log, f"the container did not run: {error}")
        finally:
            timer.cancel()
            self._running.discard(container)
            container.remove(force=True)

    def stop(self) -> None:
        """Kill the running containers."""
        for container in list(self._running):
            _kill(container)


def give_folders(pod: Path, user: int) -> None:
    """Give the folders below ``pod`` to ``user``: the launcher, which makes them, runs as the user of the step."""
    for folder in (pod, *(path for path in pod.rglob("*") if path.is_dir())):
        os.chown(folder, user, user)


def _kill(container: Container, late: threading.Event | None = None) -> None:
    if late:
        late.set()
    with suppress(DockerException):  # the container has ended meanwhile
        container.kill()


def _fail(log: Path, message: str) -> Exit:
    """Log ``message`` like the output of a failed step."""
    _tee([f"{message}\n".encode()], log)
    return Exit(1)


def _tee(lines: Iterable[bytes], log: Path) -> None:
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)
