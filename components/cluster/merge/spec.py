"""Declaration of the step ``merge_features``."""

from runtime.spec import Component, Params


class MergeFeaturesParams(Params):
    """Nothing but the seed: what the shards hold is said in their manifests."""


COMPONENT = Component(
    name="merge",
    summary="Put the shards of extract_features together, without copying them.",
    image="cpu",
    params=MergeFeaturesParams,
    outputs=("features",),
    code_paths=("bifocal/features",),
    has_parameters=False,
    package="components.cluster",
)
