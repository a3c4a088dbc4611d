"""Subject of the checks: one compiled pipeline and its cluster."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.catalog import pipeline_components
from pipelines.kubeflow.resources import Resources

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName


@dataclass(frozen=True)
class Subject:
    """Subject of the checks: ``params.yaml`` values per recipe, user files' commit, namespace and flows."""

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
