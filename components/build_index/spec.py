"""Stage build_index: parameters, inputs and outputs."""

from pydantic import Field

from runtime.spec import Component, Params


class BuildIndexParams(Params):
    """Section ``build_index`` of params.yaml."""

    factory: str = Field(
        min_length=1,
        description="exact; an index_factory string of faiss, such as IVF4096,SQ8, or with "
        "Cut64, before it for the first 64 numbers of each vector; or auto, which "
        "chooses by the number of images, memory_mb and latency_ms",
    )
    memory_mb: float = Field(
        gt=0, description="memory that a search may need, megabytes of 10^6 bytes; read with auto"
    )
    latency_ms: float = Field(
        gt=0, description="time of one query on one core, milliseconds; read with auto"
    )
    recall: float = Field(
        gt=0,
        le=1,
        description="least recall@10 of an approximate index against exact search, with its "
        "least effort",
    )
    queries: int = Field(
        ge=1,
        description="captions of the split val that measure the index and calibrate its scores",
    )
    max_query_words: int = Field(
        ge=1, description="words; longer captions are not queries, because users write short ones"
    )


COMPONENT = Component(
    name="build_index",
    summary="Build a search index with measured recall and latency, and calibrate its scores "
    "to probabilities.",
    image="cpu",
    params=BuildIndexParams,
    inputs=("dataset", "embedding", "onnx", "collection"),
    outputs=("index",),
)
