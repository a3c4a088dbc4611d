"""Engine that runs a step as a container."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from pipelines.local.engine import Exit, Pod, deadline, tee

# The owner of the repository may differ from the user in the container.
TRUST_REPOSITORY = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}


class ContainerEngine:
    """Runs steps as containers of docker, or of podman
    (``DOCKER_HOST=unix:///run/podman/podman.sock``).

    The root file system is read-only. Containers share the network of this machine, so they reach a
    local MLflow or S3 server; ``environment`` replaces the compiled variables, which name the
    servers of the cluster. ``user`` is the user and group id of the steps, by default the calling
    user's.
    """

    def __init__(
        self, environment: Mapping[str, str], repository: Path, user: int | None = None
    ) -> None:
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
                f"no docker API answers at {host} ({error}): start docker, or run 'podman "
                "system service --time=0 unix:///run/podman/podman.sock' and export "
                "DOCKER_HOST=unix:///run/podman/podman.sock"
            ) from error

    def image(self, image: str) -> str:
        """Return the image's id, because its name stays the same after a build; the name of a
        missing image."""
        with suppress(DockerException):
            return str(self.client.images.get(image).id)
        return image

    def run(self, pod: Pod) -> Exit:
        """Run the command in a new container with an empty /tmp; kill it after the timeout, and
        remove it anyway."""
        user, group = (os.getuid(), os.getgid()) if self.user is None else (self.user, self.user)
        inputs = {str(path): {"bind": str(path), "mode": "ro"} for path in pod.inputs}
        with TemporaryDirectory() as scratch:
            own = {
                scratch: {"bind": "/tmp", "mode": "rw"},
                str(pod.folder): {"bind": str(pod.folder), "mode": "rw"},
            }
            for folder in own:
                os.chown(folder, user, group)
            try:
                container = self.client.containers.create(
                    pod.image,
                    list(pod.command[1:]),
                    entrypoint=list(pod.command[:1]),
                    environment={**pod.environment, **self.environment},
                    volumes={**self.volumes, **inputs, **own},
                    user=f"{user}:{group}",
                    read_only=True,
                    network_mode="host",
                    shm_size="1g",
                )
            except DockerException as error:
                return _fail(
                    pod.log,
                    f"cannot create a container of {pod.image}: {error}; 'python "
                    "containers/build.py' builds it",
                )
            return self._wait(container, pod)

    def _wait(self, container: Container, pod: Pod) -> Exit:
        self._running.add(container)
        try:
            container.start()
            with deadline(pod.timeout, lambda: _kill(container)) as late:
                tee(container.logs(stream=True, follow=True), pod.log)
                return Exit(int(container.wait()["StatusCode"]), late.is_set())
        except DockerException as error:
            return _fail(pod.log, f"the container did not run: {error}")
        finally:
            self._running.discard(container)
            container.remove(force=True)

    def stop(self) -> None:
        """Kill the running containers."""
        for container in list(self._running):
            _kill(container)


def _kill(container: Container) -> None:
    with suppress(DockerException):  # the container has ended meanwhile
        container.kill()


def _fail(log: Path, message: str) -> Exit:
    """Log ``message`` like the output of a failed step."""
    tee([f"{message}\n".encode()], log)
    return Exit(1)
