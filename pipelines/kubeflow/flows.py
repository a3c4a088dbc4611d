"""Flows: graphs of the same stages, compiled as train, retrain, refresh, monitor or clean."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kfp import dsl

from components.catalog import final_component, pipeline_components
from components.cluster.policies import RetentionPolicy
from components.cluster.steps import (
    ACCEPTED,
    CANARY,
    CHANGED,
    CLEAN,
    FETCH,
    FETCH_RELEASE,
    FIND_CHANGES,
    FIND_RELEASE,
    MONITOR,
    PROMOTE,
    PUSH,
    RELEASE,
    VERDICT,
)
from pipelines.kubeflow.resources import Resources
from pipelines.kubeflow.tasks import TaskFactory
from pipelines.policies import (
    load_canary,
    load_promotion,
    load_retention,
    load_thresholds,
    shown_path,
)
from runtime.kubeflow.executor import USER_FILES, VERSIONS
from runtime.s3.uri import is_remote
from runtime.spec import Component

FlowName = Literal["train", "retrain", "refresh", "refresh-previous", "monitor", "clean"]
DATA = ("prepare_dataset",)
SEARCH = ("embed_collection", "build_index")
"""Stages of a collection: with them, a version is promoted with its release."""
TRUE = "true"


@dataclass
class Flow:
    """Adds the tasks of one flow to the pipeline that kfp is tracing.

    ``fingerprint`` is the first task, ``sources`` are the user files of each stage, and
    ``artifacts`` the outputs of the tasks so far, both by name. ``policy_file`` has the policy of
    promotions.
    """

    task: TaskFactory
    values: Mapping[str, Any]
    sources: Mapping[str, list[str]]
    fingerprint: dsl.PipelineTask
    checkout: Mapping[str, Any]
    policy_file: Path
    artifacts: dict[str, Any] = field(default_factory=dict)
    user_files: dict[str, Any] = field(default_factory=dict)

    def train(self) -> None:
        """Every stage; then the version gets its release, and becomes the champion if it is
        better."""
        self._add_stages(name for name in self._stages() if name not in SEARCH)
        released = None
        if set(SEARCH) <= set(self._stages()):
            self._add_collection()
            released = self._release()
        if self.task.resources.promote and self.artifacts.keys() >= set(PROMOTE.inputs):
            promoted = self._promote()
            if released:
                promoted.after(released)
        self._push()

    def retrain(self) -> None:
        """Train if the data have changed enough; embed the collection of an accepted model, and
        promote it."""
        policy, final = load_promotion(self.policy_file), self._registration()
        self._add_stages(DATA)
        promotes = self.task.resources.promote
        settings = {
            "model": final["model"],
            "alias": final["alias"],
            "promote": promotes,
            "policy": policy.model_dump(mode="json"),
        }
        changes = self.task(FIND_CHANGES, settings, dataset=self.artifacts["dataset"])
        with dsl.If(changes.outputs[CHANGED] == TRUE, name="if-changed"):
            self._add_stages(name for name in self._stages() if name not in (*DATA, *SEARCH))
            decision = self._promote(decide_only=True)
            with dsl.If(decision.outputs[ACCEPTED] == TRUE, name="if-accepted"):
                self._add_collection()
                released = self._release()
                if promotes and self.task.resources.canary is not None:
                    decided = self.task(
                        CANARY, self._canary(), registration=self.artifacts["registration"]
                    )
                    with dsl.If(
                        decided.after(released).outputs[VERDICT] == "promote", name="if-not-worse"
                    ):
                        self._promote()
                elif promotes:
                    self._promote().after(released)
                self._push()

    def refresh(self, alias: str | None = None) -> None:
        """Embed the new images with the champion, or the version with ``alias``, and give it a new
        release."""
        self.artifacts |= self._fetch_release(alias)
        previous = self.artifacts.pop("collection")
        self.artifacts.pop("index")
        self._add_stages(DATA)
        self._add_stages(SEARCH[:1], previous=previous)
        self._add_stages(SEARCH[1:])
        self._release()

    def refresh_previous(self) -> None:
        """Refresh the previous champion, so that a rollback neither loses images nor returns
        deleted ones."""
        self.refresh(load_promotion(self.policy_file).previous)

    def monitor(self) -> None:
        """Compare the last days with the reference of the champion."""
        folder = self.task.resources.monitoring.folder
        if self.task.resources.repository and not is_remote(folder):
            raise ValueError(
                f"monitoring.folder is {folder}, which only this machine has: expected s3://..."
            )
        self.artifacts |= self._fetch_release()
        section = {
            "policy": load_thresholds().model_dump(mode="json"),
            **self.task.resources.monitoring.model_dump(mode="json"),
        }
        self.task(MONITOR, section, **{name: self.artifacts[name] for name in MONITOR.inputs})

    def clean(self) -> None:
        """List, or delete, what nothing needs any more."""
        settings = clean_settings(
            self.task.resources, load_retention(), self._registration()["model"]
        )
        self.task(CLEAN, settings).after(self.fingerprint)

    def _stages(self) -> list[str]:
        return [component.name for component in stages_of("train", self.values)]

    def _registration(self) -> Mapping[str, Any]:
        section: Mapping[str, Any] = self.values[final_component(self.values["pipeline"]).name]
        return section

    def _add_stages(self, names: Iterable[str], **optional: Any) -> None:
        """Add stages with their user files, and with ``optional`` inputs that they do not
        declare."""
        chosen = set(names)
        for component in stages_of("train", self.values):
            if component.name not in chosen:
                continue
            # The flow refresh has no features: its model was trained by another run.
            inputs = {
                name: self.artifacts[name] for name in component.inputs if name in self.artifacts
            } | optional
            sources = self.sources[component.name]
            fetched = (
                [path for path in sources if not is_remote(path)]
                if self.task.resources.repository
                else []
            )
            if fetched:
                versions = self.fingerprint.outputs[component.name]
                repository = self.checkout["repository"]
                files = self.task(
                    FETCH, {"paths": fetched}, repository=repository, versions=versions
                )
                inputs[USER_FILES] = files.outputs[USER_FILES]
                self.user_files[f"{USER_FILES}_{component.name}"] = inputs[USER_FILES]
            if len(fetched) < len(sources):
                inputs[VERSIONS] = self.fingerprint.outputs[component.name]
            last = self.task.stage(component, self.values[component.name], **inputs)
            if not inputs:
                last.after(self.fingerprint)
            self.artifacts |= {name: last.outputs[name] for name in component.outputs}

    def _add_collection(self) -> None:
        """Embed the collection, with the stored features of the champion's collection, and index
        it."""
        previous = {}
        # The run has the features of its own dataset.
        if self.task.resources.promote and self.values[SEARCH[0]]["source"] is not None:
            previous["previous"] = self._fetch_release(optional=True)["collection"]
        self._add_stages(SEARCH[:1], **previous)
        self._add_stages(SEARCH[1:])

    def _promote(self, decide_only: bool = False) -> dsl.PipelineTask:
        policy = load_promotion(self.policy_file).model_dump(mode="json")
        section = {
            "policy": policy,
            "policy_file": shown_path(self.policy_file),
            "decide_only": decide_only,
        }
        return self.task(
            PROMOTE, section, **{name: self.artifacts[name] for name in PROMOTE.inputs}
        )

    def _canary(self) -> dict[str, Any]:
        policy, canary = load_promotion(self.policy_file), self.task.resources.canary
        rule = {
            "rule": asdict(load_canary()),
            "champion": policy.champion,
            "lock_timeout": policy.lock_timeout,
        }
        return rule | (canary.model_dump(mode="json") if canary else {})

    def _release(self) -> dsl.PipelineTask:
        return self.task(RELEASE, {}, **{name: self.artifacts[name] for name in RELEASE.inputs})

    def _fetch_release(self, alias: str | None = None, optional: bool = False) -> dict[str, Any]:
        """Add the tasks that find and fetch the release of the champion; the second is cached by
        its hash. Return its outputs."""
        settings = {
            "model": self._registration()["model"],
            "alias": alias or load_promotion(self.policy_file).champion,
            "optional": optional,
        }
        found = self.task(FIND_RELEASE, settings).after(self.fingerprint)
        versions = {name: found.outputs[name] for name in FIND_RELEASE.parameter_outputs}
        fetched = self.task(FETCH_RELEASE, {"model": settings["model"]}, **versions)
        return {name: fetched.outputs[name] for name in FETCH_RELEASE.outputs}

    def _push(self) -> None:
        if self.task.resources.push:
            self.task(
                PUSH, {"values": self.values}, **self.checkout, **self.artifacts, **self.user_files
            )


def clean_settings(resources: Resources, policy: RetentionPolicy, model: str) -> dict[str, Any]:
    """Return the parameters of the step ``clean`` on a cluster with these resources."""
    folders = [resources.pipeline_root, resources.store.mount_path if resources.store else None]
    return {
        "policy": policy.model_dump(mode="json"),
        "model": model,
        "artifacts": [folder for folder in folders if folder],
        "checkpoints": [resources.checkpoints] if resources.checkpoints else [],
        "delete": resources.retention.delete,
    }


def stages_of(flow: FlowName, values: Mapping[str, Any]) -> list[Component]:
    """Return the stages that a flow may run with valid parameters, in order."""
    pipeline = values["pipeline"]
    components = pipeline_components(pipeline, values)
    names = {component.name for component in components}
    if flow not in ("train", "clean") and not names >= set(SEARCH):
        raise ValueError(
            f"the flow {flow} needs a collection, but the pipeline {pipeline} has none: use "
            "embedding"
        )
    if flow in ("monitor", "clean"):
        return []
    wanted = names if flow in ("train", "retrain") else {*DATA, *SEARCH}
    return [component for component in components if component.name in wanted]
