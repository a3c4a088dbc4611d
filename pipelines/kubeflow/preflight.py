"""Preflight: whether a cluster could run the compiled pipeline, checked before a run or a schedule
is created."""

import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import urllib3
from kubernetes import client as kubernetes
from kubernetes import config
from kubernetes.client.exceptions import ApiException

from components.catalog import pipeline_components
from pipelines.kubeflow.resources import Resources
from runtime.checkout import git_environment
from runtime.redaction import redact
from runtime.s3.storage import Storage
from runtime.s3.uri import StorageError, is_remote

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
UNREACHABLE = re.compile(
    r"^(localhost|127(\.\d+){3}|\[::1\]|0\.0\.0\.0|.*\.(invalid|localhost|example|test))$", re.I
)
GIT_SECONDS = 60
GIT_LOGIN = (
    "git logs in by its own configuration here; in the cluster by the secret of "
    "BIFOCAL_GIT_USERNAME and BIFOCAL_GIT_PASSWORD"
)
S3_LOGIN = "the keys are this machine's AWS_..., the cluster has its own"
API_SECONDS = 10
STANDALONE = "kubeflow"
# What a caller of KFP's API needs on a server with several users
# (backend/src/apiserver/server/*_server.go).
CALLER = {
    "pipelines.pipelines.kubeflow.org": ("create", "list"),
    "experiments.pipelines.kubeflow.org": ("create", "list"),
    "runs.pipelines.kubeflow.org": ("create",),
    "jobs.pipelines.kubeflow.org": ("create", "list", "delete"),
}
# What the step train_distributed needs. KFP's own Role has none of it: deploy/ has one that does.
TRAINER = {
    "trainjobs.trainer.kubeflow.org": ("create", "get", "list", "watch", "delete"),
    "pods": ("get", "list"),
    "pods/log": ("get",),
}
ALL = "all"


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


def check_images(subject: PreflightSubject) -> Iterator[str]:
    """Yield unreachable images, and images without a digest: Kubeflow's cache would miss their
    changes."""
    for group in sorted({stage.image for stage in pipeline_components()}):
        image = subject.resources.images[group]
        if is_unreachable(image.partition("/")[0] if "/" in image else ""):
            yield f"{group} is {image}, which only this machine has: push it to a registry"
        elif not DIGEST.search(image):
            yield (
                f"{group} is {image}, without a digest: pass images.json of "
                "containers/build.py by --images"
            )


def is_unreachable(host: str) -> bool:
    """Whether no other machine can reach ``host``, or the name is reserved (RFC 6761)."""
    return bool(UNREACHABLE.match(re.sub(r":\d+$", "", host)))


def check_repository(subject: PreflightSubject) -> Iterator[str]:
    """Yield why ``fetch`` or ``push`` could not use the repository; nothing if neither step is in
    the pipeline."""
    if not subject.resources.push and all(is_remote(path) for path in subject.user_paths()):
        return
    repository = subject.resources.repository
    host = (
        urlsplit(repository).hostname
        if "://" in repository
        else repository.rpartition("@")[2].partition(":")[0]
    )
    if repository.startswith(("/", ".", "file:")):
        yield f"{repository} is a folder of this machine: set the URL of a git server"
    elif is_unreachable(host or ""):
        yield (
            f"{repository}: no other machine can reach the host {host}: set the URL of a git server"
        )
    elif problem := _fetch(repository, subject.revision):
        yield problem


def _fetch(repository: str, revision: str) -> str | None:
    """Fetch one commit, without its files; return the problem."""
    with TemporaryDirectory() as folder:
        clone = Path(folder)
        _git(clone, "init", "--quiet", "--bare")
        if error := _git(clone, "ls-remote", "--quiet", "--exit-code", "--", repository, "HEAD"):
            return f"git cannot read {repository}: {error}; {GIT_LOGIN}"
        if error := _git(
            clone, "fetch", "--quiet", "--depth=1", "--filter=tree:0", "--", repository, revision
        ):
            return (
                f"{repository} does not have {revision} ({error}): push the commit, or name "
                "another by --revision"
            )
    return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=git_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=GIT_SECONDS,
        )
    except FileNotFoundError:
        return "git is not installed"
    except subprocess.TimeoutExpired:
        return f"no answer within {GIT_SECONDS} s"
    return (done.stderr.strip().splitlines() or ["git failed"])[-1] if done.returncode else None


def check_buckets(subject: PreflightSubject) -> Iterator[str]:
    """Yield the S3 addresses that this machine's keys cannot write or cannot read."""
    storage = Storage(attempts=2, timeout=10)
    writable = [subject.resources.checkpoints] if subject.resources.checkpoints else []
    if subject.distributed:
        writable.append(subject.resources.trainer.folder)
    if subject.resources.push:
        remote = dvc_remote()
        if remote is None:
            yield (
                "push is true, but DVC has no default remote: 'dvc remote add --default NAME "
                "URL', or set push: false"
            )
        elif is_remote(remote):
            writable.append(f"{remote.rstrip('/')}/files")  # where DVC writes
    readable = set(filter(is_remote, subject.user_paths()))
    if "monitor" in subject.flows:
        monitoring = subject.resources.monitoring
        writable.append(monitoring.folder)
        readable |= set(monitoring.queries)
    if "retrain" in subject.flows and subject.resources.canary is not None:
        writable.append(subject.resources.canary.folder)
    checks = [(storage.check_writable, address) for address in writable]
    checks += [(storage.check_readable, address) for address in sorted(readable)]
    for check, address in checks:
        try:
            check(address)
        except StorageError as error:
            yield f"{error} ({S3_LOGIN})"


def dvc_remote() -> str | None:
    """Return the address of DVC's default remote; None if there is none."""
    parser = ConfigParser()
    parser.read([".dvc/config", ".dvc/config.local"])
    name = parser.get("core", "remote", fallback=None)
    return parser.get(f"'remote \"{name}\"'", "url", fallback=None)


def check_permissions(subject: PreflightSubject) -> Iterator[str]:
    """Yield missing permissions, and objects of the pods that the namespace does not have."""
    try:
        _connect()
        kubernetes.VersionApi().get_code(_request_timeout=API_SECONDS)
    except (config.ConfigException, ApiException, urllib3.exceptions.HTTPError) as error:
        click.echo(
            "preflight: permissions are not checked: no Kubernetes API can be reached "
            f"({type(error).__name__})"
        )
        return
    namespace = subject.namespace or STANDALONE
    if subject.namespace:
        yield from _missing_rights(CALLER, namespace)
    account = subject.resources.service_account or (
        "default-editor" if subject.namespace else "pipeline-runner"
    )
    if subject.distributed:
        yield from _missing_rights(
            TRAINER, namespace, f"system:serviceaccount:{namespace}:{account}"
        )
    yield from _missing_objects(subject, namespace, account)


def _connect() -> None:
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))


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
            click.echo(
                f"preflight: you may not read the permissions of {user or 'you'}, so they are "
                "not checked"
            )
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


def _missing_objects(subject: PreflightSubject, namespace: str, account: str) -> Iterator[str]:
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
            read(name, namespace, _request_timeout=API_SECONDS)
        except ApiException as error:
            if error.status == 404:
                yield f"namespace {namespace} has no {kind} {name}"


CHECKS: Mapping[str, Callable[[PreflightSubject], Iterable[str]]] = {
    "images": check_images,
    "repository": check_repository,
    "buckets": check_buckets,
    "permissions": check_permissions,
}


def check_all(subject: PreflightSubject, skipped: Collection[str] = ()) -> None:
    """Run the checks that are not ``skipped`` (names, or ``ALL``); raise ``ValueError`` with all
    problems."""
    checks: dict[str, Any] = (
        {} if ALL in skipped else {name: CHECKS[name] for name in CHECKS if name not in skipped}
    )
    problems = [
        f"{name}: {redact(problem)}" for name, check in checks.items() for problem in check(subject)
    ]
    if problems:
        lines = "\n  ".join(problems)
        raise ValueError(
            f"the cluster cannot run this pipeline:\n  {lines}\n"
            "set the values in a file for --resources; --skip-check NAME omits a check that "
            "cannot be made from here"
        )
