"""Cluster step merge: parameters, inputs and outputs."""

from runtime.spec import Component, Params


class MergeParams(Params):
    """No parameters of its own: the manifests of the shards hold all information."""


COMPONENT = Component(
    name="merge",
    summary="Merge the shards of extract_features into one feature store, without copying their files.",
    image="cpu",
    params=MergeParams,
    outputs=("features",),
    large_outputs=("features",),
    has_parameters=False,
    package="components.cluster",
)
