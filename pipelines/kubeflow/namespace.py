"""Permissions and objects that the pods of a run need in their namespace and on the cluster."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import urllib3
from kubernetes import client as kubernetes
from kubernetes import config
from kubernetes.client.exceptions import ApiException

from components.catalog import pipeline_components
from pipelines.kubeflow.resources import Resources

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName

API_SECONDS = 10
STANDALONE = "kubeflow"
SEARCH, IMAGES = "search", "images"
"""Namespace of the search service, and the claim that its replicas mount."""
MANY_WRITERS = {"ReadWriteMany"}
MANY_READERS = {"ReadOnlyMany", *MANY_WRITERS}
CLIENT_LABEL = "bifocal/mlflow-client"
TOKEN = "access-ml-pipeline"
"""PodDefault of a profile, and the label of pods that get its token for KFP's API."""
# What a caller of KFP's API needs on a server with several users
# (backend/src/apiserver/server/*_server.go).
CALLER = {
    "pipelines.pipelines.kubeflow.org": ("create", "list"),
    "experiments.pipelines.kubeflow.org": ("create", "list"),
    "runs.pipelines.kubeflow.org": ("create",),
    "jobs.pipelines.kubeflow.org": ("create", "list", "delete"),
}
# What the pods of a run need from KFP's Role pipeline-runner.
STEP = {"workflowtaskresults.argoproj.io": ("create",), "secrets": ("get",)}
# What the step train_distributed needs. KFP's own Role has none of it: deploy/ has one that does.
TRAINER = {
    "trainjobs.trainer.kubeflow.org": ("create", "get", "list", "watch", "delete"),
    "pods": ("get", "list"),
    "pods/log": ("get",),
}


class NotProbed(str):
    """A check that could not be made, which has not passed."""


@dataclass(frozen=True)
class PreflightSubject:
    """Subject of the checks: ``params.yaml`` values per recipe, user files' commit, namespace and
    flows."""

    values: Sequence[Mapping[str, Any]]
    resources: Resources
    revision: str
    namespace: str | None
    flows: Collection["FlowName"]

    @property
    def distributed(self) -> bool:
        """Whether a step runs on several nodes, as a TrainJob."""
        return any(self.resources.for_step(stage.name).nodes > 1 for stage in pipeline_components())

    def user_paths(self) -> set[str]:
        """Return the user files of all stages."""
        return {
            path
            for values in self.values
            for stage in pipeline_components()
            for path in stage.user_paths(values.get(stage.name, {})).values()
        }


def check_permissions(subject: PreflightSubject) -> Iterator[str]:
    """Yield missing permissions, and objects of the pods that the namespace does not have."""
    if problem := _connect():
        yield problem
        return
    namespace = subject.namespace or STANDALONE
    if subject.namespace:
        yield from _missing_rights(CALLER, namespace)
    account = subject.resources.service_account or (
        "default-editor" if subject.namespace else "pipeline-runner"
    )
    user = f"system:serviceaccount:{namespace}:{account}"
    yield from _missing_rights(STEP, namespace, user)
    if subject.distributed:
        kind = "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes"
        read = partial(kubernetes.CustomObjectsApi().get_cluster_custom_object, *kind)
        name = subject.resources.trainer.runtime
        runtime = _found("ClusterTrainingRuntime", name, read)
        # The API answers no to everybody for the resources of a Trainer that is not installed.
        if runtime:
            yield runtime + ": install Kubeflow Trainer with its runtimes, or set nodes: 1"
        else:
            yield from _missing_rights(TRAINER, namespace, user)
    yield from _missing_objects(subject, namespace, account)


def _connect() -> str:
    try:
        try:
            config.load_incluster_config()
        except config.ConfigException:
            config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))
        kubernetes.VersionApi().get_code(_request_timeout=API_SECONDS)
    except (config.ConfigException, ApiException, urllib3.exceptions.HTTPError) as error:
        return NotProbed(f"no Kubernetes API can be reached ({type(error).__name__})")
    return ""


def _missing_rights(
    rights: Mapping[str, Sequence[str]], namespace: str, user: str | None = None
) -> Iterator[str]:
    """Yield the rights that a user, by default the caller, does not have."""
    for resource, verbs in rights.items():
        try:
            denied = [verb for verb in verbs if not _may(namespace, resource, verb, user)]
        except ApiException as error:
            if error.status != 403:
                raise OSError(
                    f"the Kubernetes API rejected the request: {error.status} {error.reason}"
                ) from error
            yield NotProbed(f"you may not read the permissions of {user or 'you'}")
            return
        if denied:
            yield f"{user or 'you'} may not {', '.join(denied)} {resource}: see deploy/README.md"


def _may(namespace: str, right: str, verb: str, user: str | None) -> bool:
    resource, _, group = right.partition(".")
    name, _, subresource = resource.partition("/")
    attributes = kubernetes.V1ResourceAttributes(
        namespace=namespace, group=group, resource=name, subresource=subresource, verb=verb
    )
    api = kubernetes.AuthorizationV1Api()
    if user is None:
        own = kubernetes.V1SelfSubjectAccessReview(
            spec=kubernetes.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
        answer = api.create_self_subject_access_review(own, _request_timeout=API_SECONDS)
    else:
        groups = [
            "system:authenticated",
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
        ]
        spec = kubernetes.V1SubjectAccessReviewSpec(
            user=user, groups=groups, resource_attributes=attributes
        )
        review = kubernetes.V1LocalSubjectAccessReview(
            spec=spec, metadata=kubernetes.V1ObjectMeta(namespace=namespace)
        )
        answer = api.create_namespaced_local_subject_access_review(
            namespace, review, _request_timeout=API_SECONDS
        )
    return bool(answer.status.allowed)


def _read_pod_default(name: str, namespace: str, **options: Any) -> Any:
    return kubernetes.CustomObjectsApi().get_namespaced_custom_object(
        "kubeflow.org", "v1alpha1", namespace, "poddefaults", name, **options
    )


def _found(kind: str, name: str, read: Callable[..., Any], *where: str) -> str:
    """Return why an object of a namespace, or of the cluster, was not found; "" if it was."""
    place = f"namespace {where[0]}" if where else "the cluster"
    try:
        read(name, *where, _request_timeout=API_SECONDS)
    except ApiException as error:
        text = f"{place} has no {kind} {name}"
        if error.status == 404:
            return text
        return NotProbed(f"whether {text} is unknown: {error.status} {error.reason}")
    return ""


def _missing_objects(subject: PreflightSubject, namespace: str, account: str) -> Iterator[str]:
    api, resources = kubernetes.CoreV1Api(), subject.resources
    steps = [resources.default, *resources.steps.values()]
    claims = {volume.claim for step in steps for volume in step.volumes}
    secrets = {*resources.default.secrets, *resources.for_step("notify").secrets}
    if resources.canary is not None:
        secrets |= {*resources.for_step("canary").secrets}
    names = [("service account", api.read_namespaced_service_account, account)]
    names += [
        ("secret", api.read_namespaced_secret, name)
        for name in (*resources.image_pull_secrets, *sorted(secrets))
    ]
    read_claim = api.read_namespaced_persistent_volume_claim
    names += [("claim", read_claim, name) for name in sorted(claims)]
    if subject.namespace and TOKEN in resources.for_step("notify").labels:
        names.append(("PodDefault", _read_pod_default, TOKEN))
    for kind, read, name in names:
        if problem := _found(kind, name, read, namespace):
            yield problem
    # Steps on several nodes mount the store at once, and replicas of the search service the images.
    shared = [(namespace, resources.store.claim, MANY_WRITERS)] if resources.store else []
    for place, claim, modes in (*shared, (SEARCH, IMAGES, MANY_READERS)):
        try:
            found = read_claim(claim, place, _request_timeout=API_SECONDS)
        except ApiException as error:
            if place == namespace and error.status == 404:
                yield f"namespace {place} has no claim {claim}"
            continue
        if not modes & {*((found.spec and found.spec.access_modes) or ())}:
            yield f"the claim {claim} of namespace {place} is for one node: {' or '.join(modes)}"


def check_services(subject: PreflightSubject) -> Iterator[str]:
    """Yield what the pods need outside of their namespace: retries, and MLflow on this cluster."""
    if problem := _connect():
        yield problem
        return
    api, namespace = kubernetes.CoreV1Api(), subject.namespace or STANDALONE
    try:
        policy = api.read_namespaced_config_map(
            "workflow-controller-configmap", STANDALONE, _request_timeout=API_SECONDS
        )
        if "retryPolicy: OnError" in (policy.data or {}).get("workflowDefaults", ""):
            yield "Argo repeats no failed step (retryPolicy: OnError): apply deploy/retries.yaml"
        host = urlsplit(subject.resources.environment.get("MLFLOW_TRACKING_URI", "")).hostname or ""
        name, _, rest = host.partition(".")
        if ".svc" not in rest:
            return
        server = kubernetes.AppsV1Api().read_namespaced_deployment(
            name, rest.partition(".")[0], _request_timeout=API_SECONDS
        )
        if not (server.status and server.status.available_replicas):
            yield f"the deployment of MLflow, {host}, is not available: see deploy/README.md"
        labels = api.read_namespace(namespace, _request_timeout=API_SECONDS).metadata.labels or {}
        if labels.get(CLIENT_LABEL) != "true":
            yield (
                f"namespace {namespace} may not reach MLflow: kubectl label namespace {namespace} "
                f"{CLIENT_LABEL}=true"
            )
    except ApiException as error:
        yield NotProbed(f"retries and MLflow of the cluster: {error.status} {error.reason}")
