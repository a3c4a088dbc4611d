"""Cluster step merge_collection: parameters, inputs and outputs."""

from runtime.spec import ClusterStep, Params

COMPONENT = ClusterStep(
    name="merge_collection",
    summary="Merge the shards of embed_collection into one collection, without copying their files.",
    params=Params,
    outputs=("collection",),
)
