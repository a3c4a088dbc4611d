"""Settings of the pod of a task: resources, placement, volumes, secrets and retries."""

from collections.abc import Mapping

from kfp import dsl, kubernetes

from pipelines.kubeflow.step_resources import StepResources

RUN_ID = "KFP_RUN_ID"
Secrets = Mapping[str, Mapping[str, str]]


def configure_pod(task: dsl.PipelineTask, step: StepResources, secrets: Secrets) -> None:
    """Set the pod of ``task``; ``secrets`` maps the keys of every secret to environment variables."""
    _set_resources(task, step)
    _set_placement(task, step)
    _set_volumes(task, step)
    _set_identity(task, step, secrets)
    kubernetes.set_timeout(task, step.timeout)
    if step.retries:
        task.set_retry(
            step.retries,
            backoff_duration=f"{step.retry_delay}s",
            backoff_factor=step.retry_factor,
            backoff_max_duration=f"{step.retry_deadline}s",
        )


def _set_resources(task: dsl.PipelineTask, step: StepResources) -> None:
    task.set_cpu_request(step.cpu).set_memory_request(step.memory).set_memory_limit(step.memory)
    if step.cpu_limit:
        task.set_cpu_limit(step.cpu_limit)
    if step.gpu:
        task.set_accelerator_type(step.gpu.type).set_accelerator_limit(step.gpu.count)


def _set_placement(task: dsl.PipelineTask, step: StepResources) -> None:
    for label, value in sorted(step.node_selector.items()):
        kubernetes.add_node_selector(task, label_key=label, label_value=value)
    if step.node_affinity:
        # One term: its expressions must all match. The driver combines several terms by "or".
        expressions = [requirement.model_dump() for requirement in step.node_affinity]
        kubernetes.add_node_affinity(task, match_expressions=expressions)
    for toleration in step.tolerations:
        kubernetes.add_toleration(task, **toleration.model_dump())


def _set_volumes(task: dsl.PipelineTask, step: StepResources) -> None:
    for volume in step.volumes:
        kubernetes.mount_pvc(task, pvc_name=volume.claim, mount_path=volume.mount_path, sub_path=volume.sub_path)
    if step.scratch_volume:
        kubernetes.add_ephemeral_volume(
            task,
            volume_name="scratch",
            mount_path=step.scratch_volume.mount_path,
            access_modes=["ReadWriteOnce"],
            size=step.scratch_volume.size,
            storage_class_name=step.scratch_volume.storage_class,
        )
    if step.shared_memory:
        kubernetes.empty_dir_mount(
            task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit=step.shared_memory
        )


def _set_identity(task: dsl.PipelineTask, step: StepResources, secrets: Secrets) -> None:
    # KFP labels every pod of a run (backend/src/apiserver/template/v2_template.go:427). As a variable, not an
    # argument, the id is in no cache key.
    kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
    for name in sorted(step.secrets):
        # Optional: a missing secret or key is not an error.
        kubernetes.use_secret_as_env(task, secret_name=name, secret_key_to_env=dict(secrets[name]), optional=True)
    for label, value in sorted(step.labels.items()):
        kubernetes.add_pod_label(task, label, value)
    for annotation, value in sorted(step.annotations.items()):
        kubernetes.add_pod_annotation(task, annotation, value)
    if step.security_context:
        kubernetes.set_security_context(task, **step.security_context.model_dump())
