"""Declaration of the step ``merge_features``."""

from components.spec import Component, Params


class MergeFeaturesParams(Params):
    """Nothing but the seed: what the shards hold is said in their manifests."""


COMPONENT = Component(
    name="merge_features",
    summary="Put the shards of extract_features together, without copying them.",
    image="cpu",
    params=MergeFeaturesParams,
    outputs=("features",),
    code=("bifocal/features",),
    section=False,
)
