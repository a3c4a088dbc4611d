"""Cluster step merge: parameters, inputs and outputs."""

from runtime.spec import ClusterStep, Params

COMPONENT = ClusterStep(
    name="merge",
    summary="Merge the shards of extract_features into one feature store, without copying their files.",
    params=Params,
    outputs=("features",),
    large_outputs=("features",),
)
