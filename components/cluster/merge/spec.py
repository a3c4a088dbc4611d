"""Cluster step merge: parameters, inputs and outputs."""

from runtime.spec import ClusterStep, Params


class MergeParams(Params):
    """No parameters of its own: the manifests of the shards hold all information."""


COMPONENT = ClusterStep(
    name="merge",
    summary="Merge the shards of extract_features into one feature store, without copying their files.",
    params=MergeParams,
    outputs=("features",),
    large_outputs=("features",),
)
