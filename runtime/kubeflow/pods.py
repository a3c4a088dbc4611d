"""Creation of a TrainJob, with the patch of its pods in the Trainer's runtime."""

import json
import os
from collections.abc import Mapping
from typing import Any

from kubeflow.trainer import CustomTrainerContainer
from kubeflow.trainer import options as patches
from kubeflow.trainer.options.common import Name

from runtime.kubeflow.node import JOB, SECRETS
from runtime.kubeflow.node_settings import NodeSettings

SHARED_MEMORY = "shared-memory"
QUEUE = "kueue.x-k8s.io/"


def create_train_job(
    client: Any, name: str, image: str, nodes: int, settings: NodeSettings, job: Mapping[str, Any]
) -> None:
    """Create the TrainJob ``name``; each node runs ``runtime.kubeflow.node`` with the description ``job``."""
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
    """Return the patch of the pods with the container ``node``. Trainer's API allows no patch of its variables (trainer
    ``pkg/runtime/framework/plugins/jobset/jobset.go:178``), so secrets are mounted as files.
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
    jobs = patches.JobSetSpecPatch(replicated_jobs=[patches.ReplicatedJobPatch(name="node", template=job)])
    return patches.RuntimePatch(
        patches.TrainingRuntimeSpecPatch(template=patches.JobSetTemplatePatch(spec=jobs)),
    )


def _volumes(settings: NodeSettings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [
        {"name": name, "secret": {"secretName": name, "optional": True}} for name in settings.secrets
    ]
    mounts: list[dict[str, Any]] = [
        {"name": name, "mountPath": f"{SECRETS}/{name}", "readOnly": True} for name in settings.secrets
    ]
    for number, volume in enumerate(settings.volumes):
        name = {"name": f"volume-{number}"}
        mounts.append(name | {key: volume[key] for key in ("mountPath", "subPath") if key in volume})
        volumes.append(name | {key: volume[key] for key in volume.keys() - {"mountPath", "subPath"}})
    if settings.shared_memory:
        volumes.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}})
        mounts.append({"name": SHARED_MEMORY, "mountPath": "/dev/shm"})
    return volumes, mounts


def _affinity(expressions: list[dict[str, Any]]) -> Mapping[str, Any] | None:
    if not expressions:
        return None
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
