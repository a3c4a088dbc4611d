"""Check of the permissions on the cluster, if this machine can reach its Kubernetes API."""

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import urllib3
from kubernetes import client as kubernetes
from kubernetes import config
from kubernetes.client.exceptions import ApiException

from pipelines.kubeflow.preflight.subject import Subject

TIMEOUT_SECONDS = 10
STANDALONE = "kubeflow"


class Right(NamedTuple):
    """Permission of a user in a namespace."""

    group: str
    resource: str
    verbs: tuple[str, ...]


# What a caller of KFP's API needs on a server with several users (backend/src/apiserver/server/*_server.go).
CALLER = (
    Right("pipelines.kubeflow.org", "pipelines", ("create", "list")),
    Right("pipelines.kubeflow.org", "experiments", ("create", "list")),
    Right("pipelines.kubeflow.org", "runs", ("create",)),
    Right("pipelines.kubeflow.org", "jobs", ("create", "list", "delete")),
)
# What the step train_distributed needs. KFP's own Role has none of it: deploy/ has one that does.
TRAINER = (
    Right("trainer.kubeflow.org", "trainjobs", ("create", "get", "list", "watch", "delete")),
    Right("", "pods", ("get", "list")),
    Right("", "pods/log", ("get",)),
)


def check_permissions(subject: Subject) -> Iterator[str]:
    """Yield missing permissions, and objects of the pods that the namespace does not have."""
    try:
        _connect()
        kubernetes.VersionApi().get_code(_request_timeout=TIMEOUT_SECONDS)
    except (config.ConfigException, ApiException, urllib3.exceptions.HTTPError) as error:
        click.echo(f"preflight: permissions are not checked: no Kubernetes API can be reached ({type(error).__name__})")
        return
    namespace = subject.namespace or STANDALONE
    if subject.namespace:
        yield from _missing_rights(CALLER, "you", lambda right: _review_self(namespace, right))
    account = subject.resources.service_account or ("default-editor" if subject.namespace else "pipeline-runner")
    if subject.distributed:
        user = f"system:serviceaccount:{namespace}:{account}"
        yield from _missing_rights(TRAINER, user, lambda right: _review(namespace, user, right))
    yield from _missing_objects(subject, namespace, account)


def _connect() -> None:
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))


def _missing_rights(rights: tuple[Right, ...], user: str, review: Callable[[dict[str, str]], bool]) -> Iterator[str]:
    for group, resource, verbs in rights:
        name, _, subresource = resource.partition("/")
        try:
            denied = [
                verb
                for verb in verbs
                if not review({"group": group, "resource": name, "subresource": subresource, "verb": verb})
            ]
        except ApiException as error:
            if error.status != 403:
                raise OSError(f"the Kubernetes API rejected the request: {error.status} {error.reason}") from error
            click.echo(f"preflight: you may not read the permissions of {user}, so they are not checked")
            return
        if denied:
            yield f"{user} may not {', '.join(denied)} {resource}{'.' + group if group else ''}: see deploy/README.md"


def _review_self(namespace: str, right: dict[str, str]) -> bool:
    spec = kubernetes.V1SelfSubjectAccessReviewSpec(
        resource_attributes=kubernetes.V1ResourceAttributes(namespace=namespace, **right)
    )
    review = kubernetes.V1SelfSubjectAccessReview(spec=spec)
    answer = kubernetes.AuthorizationV1Api().create_self_subject_access_review(review, _request_timeout=TIMEOUT_SECONDS)
    return bool(answer.status.allowed)


def _review(namespace: str, user: str, right: dict[str, str]) -> bool:
    spec = kubernetes.V1SubjectAccessReviewSpec(
        user=user,
        groups=["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
        resource_attributes=kubernetes.V1ResourceAttributes(namespace=namespace, **right),
    )
    review = kubernetes.V1LocalSubjectAccessReview(spec=spec, metadata=kubernetes.V1ObjectMeta(namespace=namespace))
    answer = kubernetes.AuthorizationV1Api().create_namespaced_local_subject_access_review(
        namespace, review, _request_timeout=TIMEOUT_SECONDS
    )
    return bool(answer.status.allowed)


def _missing_objects(subject: Subject, namespace: str, account: str) -> Iterator[str]:
    api, resources = kubernetes.CoreV1Api(), subject.resources
    steps = [resources.default, *resources.steps.values()]
    claims = {volume.claim for step in steps for volume in step.volumes}
    if resources.store:
        claims.add(resources.store.claim)
    names: list[tuple[str, Callable[..., Any], str]] = [
        ("service account", api.read_namespaced_service_account, account),
        *(("secret", api.read_namespaced_secret, name) for name in resources.image_pull_secrets),
        *(("claim", api.read_namespaced_persistent_volume_claim, name) for name in sorted(claims)),
    ]
    for kind, read, name in names:
        try:
            read(name, namespace, _request_timeout=TIMEOUT_SECONDS)
        except ApiException as error:
            if error.status == 404:
                yield f"namespace {namespace} has no {kind} {name}"
