"""A TrainJob of Kubeflow's Trainer: created or adopted, watched through outages of the API, deleted
when it is done."""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kubeflow.trainer import CustomTrainerContainer
from kubeflow.trainer import options as patches
from kubeflow.trainer.constants import constants
from kubeflow.trainer.options.common import Name
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from bifocal.progress import log_line
from runtime.kubeflow.node import JOB, SECRETS, NodeSettings

SHARED_MEMORY = "shared-memory"
QUEUE = "kueue.x-k8s.io/"
T = TypeVar("T")
POLL_SECONDS = 15.0
OUTAGE_SECONDS = 3600.0
LOG_LINES = 20
SILENT_SECONDS = 60.0
"""Waiting for a place without a line."""


def create_train_job(
    client: Any, name: str, image: str, nodes: int, settings: NodeSettings, job: Mapping[str, Any]
) -> None:
    """Create the TrainJob ``name``; each node runs ``runtime.kubeflow.node`` with the description
    ``job``."""
    environment = {name: os.environ[name] for name in settings.environment if name in os.environ}
    trainer = CustomTrainerContainer(
        image=image,
        num_nodes=nodes,
        resources_per_node=settings.resources,
        env={**environment, JOB: json.dumps(job, sort_keys=True)},
    )
    client.train(
        runtime=settings.runtime,
        trainer=trainer,
        options=[
            Name(name),
            patches.Labels(settings.labels),
            patches.Annotations(settings.annotations),
            patches.TrainerCommand(["python", "-m", "runtime.kubeflow.node"]),
            runtime_patch(settings),
            patches.ActiveDeadlineSeconds(settings.timeout),
        ],
    )


def runtime_patch(settings: NodeSettings) -> patches.RuntimePatch:
    """Return the patch of the pods with the container ``node``. Trainer's API allows no patch of
    its variables (trainer ``pkg/runtime/framework/plugins/jobset/jobset.go:178``), so secrets are
    mounted as files.
    """
    volumes, mounts = _volumes(settings)
    pod = patches.PodSpecPatch(
        containers=[patches.ContainerPatch(name="node", volume_mounts=mounts)],
        volumes=volumes,
        node_selector=settings.node_selector or None,
        affinity=_affinity(settings.node_affinity),
        tolerations=settings.tolerations or None,
        image_pull_secrets=[{"name": name} for name in settings.image_pull_secrets] or None,
        security_context=settings.security_context,
    )
    # A queue admits the TrainJob as a whole, by the labels of the job.
    labels = {name: value for name, value in settings.labels.items() if not name.startswith(QUEUE)}
    metadata = {"labels": labels, "annotations": settings.annotations}
    template = patches.PodTemplatePatch(metadata=metadata, spec=pod)
    job = patches.JobTemplatePatch(spec=patches.JobSpecPatch(template=template))
    jobs = patches.JobSetSpecPatch(
        replicated_jobs=[patches.ReplicatedJobPatch(name="node", template=job)]
    )
    return patches.RuntimePatch(
        patches.TrainingRuntimeSpecPatch(template=patches.JobSetTemplatePatch(spec=jobs))
    )


def _volumes(settings: NodeSettings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [
        {"name": name, "secret": {"secretName": name, "optional": True}}
        for name in settings.secrets
    ]
    mounts: list[dict[str, Any]] = [
        {"name": name, "mountPath": f"{SECRETS}/{name}", "readOnly": True}
        for name in settings.secrets
    ]
    for number, volume in enumerate(settings.volumes):
        name = {"name": f"volume-{number}"}
        mounts.append(
            name | {key: volume[key] for key in ("mountPath", "subPath") if key in volume}
        )
        volumes.append(
            name | {key: volume[key] for key in volume.keys() - {"mountPath", "subPath"}}
        )
    if settings.shared_memory:
        volumes.append(
            {
                "name": SHARED_MEMORY,
                "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory},
            }
        )
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})
    return volumes, mounts


def _affinity(expressions: list[dict[str, Any]]) -> Mapping[str, Any] | None:
    if not expressions:
        return None
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


class JobError(ValueError):
    """The job failed, or the API rejects a request for good."""


@dataclass(frozen=True)
class TrainJob:
    """TrainJob ``name``; a restarted step adopts it. Neither errors nor a killed step delete a
    running job, ``activeDeadlineSeconds`` bounds its time.
    """

    client: Any
    name: str
    create: Callable[[], object]
    timeout: float
    queue_timeout: float

    def run(self) -> None:
        """Wait until the job is complete, and delete it."""
        deadline = time.monotonic() + self.timeout
        self._create_or_adopt(deadline)
        since, reported = time.monotonic(), ""
        while time.monotonic() < deadline:
            job = self._get()
            if job is None:
                raise JobError(
                    f"the TrainJob {self.name} was deleted while it ran: start the step again"
                )
            condition, pods = _final_condition(job), self._pods()
            nodes = job["spec"]["trainer"]["numNodes"]
            # The job has no final condition while a pod of a lost node has not ended.
            ended = sum(pod.status.phase == "Succeeded" for pod in pods or ())
            if condition is None and ended < nodes:
                reasons = self._waiting(pods, nodes)
                waited = time.monotonic() - since
                if not reasons:
                    since = time.monotonic()
                elif waited > self.queue_timeout:
                    self._delete()
                    raise TimeoutError(
                        f"the TrainJob {self.name} found no place within {self.queue_timeout:g} "
                        f"seconds, and was deleted: {reasons}"
                    )
                elif waited > SILENT_SECONDS and reasons != reported:
                    log_line(f"the TrainJob {self.name} waits: {reasons}")
                    reported = reasons
                time.sleep(POLL_SECONDS)
                continue
            if condition is None or condition["type"] == constants.TRAINJOB_COMPLETE:
                self._delete()
                return
            reason = ", ".join(
                filter(None, [condition.get("reason"), condition.get("message"), *self._exits()])
            )
            log = self._log()
            self._delete()
            raise JobError(
                f"the TrainJob {self.name} failed ({reason}); end of the log of node 0:\n{log}"
            )
        self._delete()
        raise TimeoutError(
            f"the TrainJob {self.name} did not end within {self.timeout:g} seconds, and was deleted"
        )

    def _create_or_adopt(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            job = self._get()
            if job is None:
                try:
                    self._retry(self.create)
                except RuntimeError as error:
                    if (
                        _status(error) != 409
                    ):  # 409: an earlier request created it, but had no answer
                        raise JobError(
                            f"the TrainJob {self.name} was rejected: {_explain(error)}"
                        ) from error
                return
            if "deletionTimestamp" in job["metadata"]:
                time.sleep(POLL_SECONDS)  # its successor may have its name when it is gone
            elif (_final_condition(job) or {}).get("type") == constants.TRAINJOB_FAILED:
                log_line(f"the TrainJob {self.name} of an earlier attempt failed: deleting it")
                self._delete()
                time.sleep(POLL_SECONDS)
            else:
                log_line(f"waiting for the TrainJob {self.name}")
                return

    def _get(self) -> dict[str, Any] | None:
        """Return the job or None; the SDK's ``get_job`` needs runtime and pods and hides a deletion
        in progress."""
        backend = self.client.backend

        def request() -> dict[str, Any]:
            job: dict[str, Any] = backend.custom_api.get_namespaced_custom_object(
                constants.GROUP,
                constants.VERSION,
                backend.namespace,
                constants.TRAINJOB_PLURAL,
                self.name,
            )
            return job

        try:
            return self._retry(request)
        except ApiException as error:
            if error.status == 404:
                return None
            raise JobError(f"the TrainJob {self.name} cannot be read: {_explain(error)}") from error

    def _delete(self) -> None:
        try:
            self._retry(lambda: self.client.delete_job(self.name))
        except RuntimeError as error:
            if _status(error) != 404:
                log_line(f"warning: the TrainJob {self.name} remains: {_explain(error)}")

    def _waiting(self, pods: Any, nodes: int) -> str:
        """Return why fewer than ``nodes`` pods run, by the scheduler, images and warning events."""
        if (
            pods is None
            or sum(pod.status.phase in ("Running", "Succeeded") for pod in pods) >= nodes
        ):
            return ""
        reasons = [
            f"{condition.reason}: {condition.message}"
            for pod in pods
            for condition in pod.status.conditions or ()
            if condition.status == "False" and condition.type == "PodScheduled"
        ]
        reasons += [
            f"{status.state.waiting.reason} {status.state.waiting.message or ''}".strip()
            for pod in pods
            for status in pod.status.container_statuses or ()
            if status.state and status.state.waiting
        ]
        backend = self.client.backend
        with suppress(ApiException, HTTPError, OSError):  # the role may not allow events
            events = backend.core_api.list_namespaced_event(backend.namespace).items
            reasons += [
                f"{event.reason}: {event.message}"
                for event in events
                if event.type == "Warning"
                and (event.involved_object.name or "").startswith(self.name)
            ]
        return "; ".join(dict.fromkeys(reasons)) or "not all of its pods run"

    def _pods(self) -> list[Any] | None:
        """Return the pods of the job; None if they are unknown."""
        backend, labels = (
            self.client.backend,
            constants.POD_LABEL_SELECTOR.format(trainjob_name=self.name),
        )
        try:
            found = self._retry(
                lambda: backend.core_api.list_namespaced_pod(
                    backend.namespace, label_selector=labels
                )
            )
        except (ApiException, OSError):
            return None
        return list(found.items)

    def _exits(self) -> list[str]:
        """Return why containers failed, such as ``OOMKilled`` with the memory that a stage
        reports."""
        states = [
            (pod.metadata.name, state.terminated)
            for pod in self._pods() or ()
            for status in pod.status.container_statuses or ()
            for state in (status.state, status.last_state)
            if state and state.terminated and state.terminated.exit_code
        ]
        return [
            f"{pod}: {end.reason} (exit code {end.exit_code}): {end.message}" for pod, end in states
        ]

    def _log(self) -> str:
        try:
            return "\n".join([*self.client.get_job_logs(self.name)][-LOG_LINES:])
        except (
            Exception
        ) as error:  # the reason of the failure matters more, and the SDK raises any class
            return f"(no log: {_explain(error)})"

    def _retry(self, request: Callable[[], T]) -> T:
        """Return the answer of ``request``; repeat it while the API does not answer or is
        overloaded."""
        end = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                return request()
            except (ApiException, HTTPError, RuntimeError, TimeoutError, OSError) as error:
                if not _is_transient(error):
                    raise
                if time.monotonic() > end:
                    raise OSError(
                        f"the Kubernetes API does not answer ({_explain(error)}); the TrainJob "
                        f"{self.name} was not deleted: start the step again to wait for it"
                    ) from error
                log_line(f"the Kubernetes API does not answer ({_explain(error)}); trying again")
                time.sleep(POLL_SECONDS)


def _final_condition(job: dict[str, Any]) -> dict[str, Any] | None:
    final = (constants.TRAINJOB_COMPLETE, constants.TRAINJOB_FAILED)
    conditions = job.get("status", {}).get("conditions", [])
    return next(
        (entry for entry in conditions if entry["type"] in final and entry["status"] == "True"),
        None,
    )


def _cause(error: BaseException) -> BaseException:
    """Return the error of the API: the SDK wraps it."""
    return (
        error.__cause__
        if isinstance(error, RuntimeError) and error.__cause__ is not None
        else error
    )


def _status(error: BaseException) -> int | None:
    cause = _cause(error)
    return cause.status if isinstance(cause, ApiException) else None


def _is_transient(error: BaseException) -> bool:
    status = _status(error)
    if status is not None:
        return (
            status in (0, 401, 408, 429) or status >= 500
        )  # 401: a service account's token is being replaced
    return isinstance(_cause(error), (HTTPError, TimeoutError, OSError))


def _explain(error: BaseException) -> str:
    cause = _cause(error)
    text = f"{cause.status} {cause.reason}" if isinstance(cause, ApiException) else repr(cause)
    return f"{error}: {text}" if cause is not error else text
