"""Pods of a TrainJob, from the resources of the step that it replaces."""

from collections.abc import Iterable
from typing import Any

from pydantic.alias_generators import to_camel

from pipelines.kubeflow.pods import RUN_ID
from pipelines.kubeflow.resources import Resources
from pipelines.kubeflow.step_resources import SecurityContext, StepResources
from runtime.kubeflow.node_settings import NodeSettings

# Variables of Kubeflow's MLflow plugin (kubeflow/pipelines 2.17, backend/src/v2/common/plugins/mlflow/handler.go:149):
# with them, the training logs to the run of the waiting step.
MLFLOW_PLUGIN = (
    "KFP_MLFLOW_CONFIG", "MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_AUTH", "MLFLOW_WORKSPACE",
)  # fmt: skip


def node_settings(step: StepResources, resources: Resources, environment: Iterable[str]) -> NodeSettings:
    """Return the machines' settings for the training ``step``; each gets the variables of the waiting step."""
    gpu = {step.gpu.type: str(step.gpu.count)} if step.gpu else {}
    return NodeSettings(
        runtime=resources.trainer.runtime,
        folder=resources.trainer.folder,
        resources={"cpu": step.cpu, "memory": step.memory, **gpu},
        processes=step.gpu.count if step.gpu else 1,
        environment=sorted({*environment, RUN_ID, *MLFLOW_PLUGIN}),
        secrets={name: dict(resources.secrets[name]) for name in sorted(step.secrets)},
        shared_memory=step.shared_memory,
        volumes=_volumes(step),
        labels=step.labels,
        annotations=step.annotations,
        node_selector=step.node_selector,
        node_affinity=[requirement.model_dump() for requirement in step.node_affinity],
        tolerations=[toleration.model_dump(exclude_none=True) for toleration in step.tolerations],
        image_pull_secrets=resources.image_pull_secrets,
        security_context=_pod_security_context(step.security_context),
        timeout=step.timeout,
    )


def _volumes(step: StepResources) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"persistentVolumeClaim": {"claimName": volume.claim}, "mountPath": volume.mount_path}
        | ({"subPath": volume.sub_path} if volume.sub_path else {})
        for volume in step.volumes
    ]
    if step.scratch_volume:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": step.scratch_volume.size}},
            "storageClassName": step.scratch_volume.storage_class,
        }
        template = {"spec": {key: value for key, value in claim.items() if value is not None}}
        path = step.scratch_volume.mount_path
        volumes.append({"ephemeral": {"volumeClaimTemplate": template}, "mountPath": path})
    return volumes


def _pod_security_context(context: SecurityContext | None) -> dict[str, Any] | None:
    if context is None:
        return None
    return {to_camel(name): value for name, value in context.model_dump(exclude_none=True).items()}
