"""Pod of a compiled step, as KFP's driver patches it (kubeflow/pipelines 2.17,
backend/src/v2/driver).

``initPodSpecPatch`` (driver.go:248) fills the container, ``extendPodSpecPatch`` (k8s.go:133) the
Kubernetes settings, and ``extendPodMetadata`` (compiler/argocompiler/container.go) the labels and
annotations.
"""

from collections.abc import Mapping
from typing import Any


def pod_of(container: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of the pod of one executor.

    Args:
        container: ``deploymentSpec.executors.*.container`` of the pipeline.
        settings: the same executor of the platform ``kubernetes``.
    """
    mounts, volumes = _volumes(settings)
    main: dict[str, Any] = {
        "name": "main",
        "image": container["image"],
        "command": ["/kfp-launcher/launch"],
        "args": [*container["command"], *container["args"]],
        "env": [*container.get("env", []), *_environment(settings)],
        "resources": _resources(container.get("resources", {})),
        "volumeMounts": mounts,
    }
    if "imagePullPolicy" in settings:
        main["imagePullPolicy"] = settings["imagePullPolicy"]
    if "securityContext" in settings:
        context = settings["securityContext"]
        main["securityContext"] = {
            name: int(value) if name != "runAsNonRoot" else value for name, value in context.items()
        }
    spec: dict[str, Any] = {
        "containers": [main],
        "volumes": volumes,
        "tolerations": settings.get("tolerations", []),
    }
    spec["activeDeadlineSeconds"] = int(settings["activeDeadlineSeconds"])
    spec["nodeSelector"] = settings.get("nodeSelector", {}).get("labels", {})
    spec["imagePullSecrets"] = [
        {"name": secret["secretName"]} for secret in settings.get("imagePullSecret", [])
    ]
    if "nodeAffinity" in settings:
        terms = [
            {"matchExpressions": term["matchExpressions"]} for term in settings["nodeAffinity"]
        ]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    metadata = {"name": "step", **settings.get("podMetadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _environment(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = [
        {
            "name": key["envVar"],
            "valueFrom": {
                "secretKeyRef": {
                    "name": secret["secretName"],
                    "key": key["secretKey"],
                    "optional": secret.get("optional", False),
                }
            },
        }
        for secret in settings.get("secretAsEnv", [])
        for key in secret["keyToEnv"]
    ]
    return entries + [
        {"name": entry["name"], "valueFrom": {"fieldRef": {"fieldPath": entry["fieldPath"]}}}
        for entry in settings.get("fieldPathAsEnv", [])
    ]


def _resources(declared: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    names = {
        "resourceCpuRequest": ("requests", "cpu"),
        "resourceCpuLimit": ("limits", "cpu"),
        "resourceMemoryRequest": ("requests", "memory"),
        "resourceMemoryLimit": ("limits", "memory"),
    }
    resources: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name, (kind, resource) in names.items():
        if name in declared:
            resources[kind][resource] = declared[name]
    if "accelerator" in declared:
        resources["limits"][declared["accelerator"]["resourceType"]] = declared["accelerator"][
            "resourceCount"
        ]
    return resources


def _volumes(settings: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    mounts, volumes = [], []
    for claim in settings.get("pvcMount", []):
        name = claim["constant"]
        mounts.append(
            {"name": name, "mountPath": claim["mountPath"], "subPath": claim.get("subPath", "")}
        )
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": name}})
    for volume in settings.get("genericEphemeralVolume", []):
        request: dict[str, Any] = {
            "accessModes": volume["accessModes"],
            "resources": {"requests": {"storage": volume["size"]}},
        }
        if not volume.get("defaultStorageClass"):
            request["storageClassName"] = volume["storageClassName"]
        mounts.append({"name": volume["volumeName"], "mountPath": volume["mountPath"]})
        volumes.append(
            {"name": volume["volumeName"], "ephemeral": {"volumeClaimTemplate": {"spec": request}}}
        )
    for volume in settings.get("emptyDirMounts", []):
        mounts.append({"name": volume["volumeName"], "mountPath": volume["mountPath"]})
        source = {"medium": volume["medium"], "sizeLimit": volume["sizeLimit"]}
        volumes.append({"name": volume["volumeName"], "emptyDir": source})
    return mounts, volumes
