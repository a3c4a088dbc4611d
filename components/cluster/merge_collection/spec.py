"""Cluster step merge_collection: parameters, inputs and outputs."""

from runtime.spec import ClusterStep, Params


class MergeCollectionParams(Params):
    """No parameters of its own: the manifests of the shards hold all information."""


COMPONENT = ClusterStep(
    name="merge_collection",
    summary="Merge the shards of embed_collection into one collection, without copying their files.",
    params=MergeCollectionParams,
    outputs=("collection",),
)
