"""Stage extract_features: run."""

from pathlib import Path

from bifocal.datasets import read_dataset
from bifocal.export.extraction import use_onnx
from bifocal.features import FeatureWriter
from bifocal.features.extraction import write_features
from bifocal.training.weights.source import open_source
from components.extract_features.spec import ExtractFeaturesParams
from runtime.shards import items_of_shard, parse_shard


def run(
    params: ExtractFeaturesParams, *, dataset: Path, features: Path, shard: str = "1/1"
) -> dict[str, float]:
    """Write the features of all images, or of a ``shard`` such as ``"2/4"``, and return sizes and
    training metrics."""
    number, count = parse_shard(shard)
    tables = read_dataset(dataset)
    source, metadata, metrics = open_source(
        params.extractor,
        params.weights,
        tables,
        features,
        batch_size=params.batch_size,
        seed=params.seed,
        sharded=count > 1,
    )
    use_onnx(source, metadata, features, len(tables.images))
    image_ids = list(
        items_of_shard([str(image_id) for image_id in tables.images["image_id"]], shard)
    )
    writer = FeatureWriter(
        features,
        regions=source.regions,
        dim=source.dim,
        metadata=metadata,
        images_per_file=params.images_per_file,
        shard=number - 1,
    )
    written = set(writer.written)
    missing = [image_id for image_id in image_ids if image_id not in written]
    write_features(source.read(missing), writer, total=len(image_ids))
    return {"images": len(image_ids), "regions": source.regions, "dim": source.dim} | metrics
