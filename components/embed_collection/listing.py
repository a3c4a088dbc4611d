"""A source that is listed once for all shards, each of which reads tables with its rows."""

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets import read_dataset
from bifocal.datasets.remote_files import is_address
from bifocal.durable import link, write_json
from bifocal.onnx.files import read_json
from bifocal.search.collection.sources import Entry, Source
from bifocal.search.collection.writer import with_metadata
from runtime.s3.remote_images import S3Images
from runtime.shards import artifact_name, items_of_shard

ENTRIES, GONE, SOURCE = "entries", "gone", "source.json"
COLUMNS = [field.name for field in fields(Entry)]
COMMON = ("root", "rejected", "unpacked", "unread", "unread_captions", "prune", "follow_links")


def write_source(source: Source, directory: Path, count: int) -> None:
    """Write a source for ``count`` shards; ``directory`` has the images of its archives."""
    columns = {name: [getattr(entry, name) for entry in source.entries] for name in COLUMNS}
    columns["captions"] = [source.captions.get(entry.item_id, ()) for entry in source.entries]
    table = pa.table(columns)
    if source.metadata is not None:
        table = with_metadata(table, source.metadata)
    for shard in (f"{number}/{count}" for number in range(1, count + 1)):
        for name, rows in ((ENTRIES, table), (GONE, source.gone)):
            pq.write_table(items_of_shard(rows, shard), directory / artifact_name(name, shard))
    write_json(directory / SOURCE, {name: getattr(source, name) for name in COMMON})


def read_source(
    directory: Path, collection: Path, shard: str, files: Path | None, dataset: Path
) -> Source:
    """Return a shard of the source, of ``files`` or else of a dataset; images of archives are
    linked into the collection."""
    common = read_json(directory / SOURCE)
    common["rejected"] = items_of_shard(common["rejected"], shard)
    table = pq.read_table(directory / artifact_name(ENTRIES, shard))
    entries = [Entry(**row) for row in table.select(COLUMNS).to_pylist()]
    root = common["root"]
    for entry in entries if common["unpacked"] else ():
        if not entry.kept:
            link(directory / root / str(entry.image), collection / root / str(entry.image))
    ids, captions = (table.column(name).to_pylist() for name in ("item_id", "captions"))
    return Source(
        **common,
        folder=files and collection / root,
        entries=entries,
        captions=dict(zip(ids, captions, strict=True)),
        metadata=table.drop_columns([*COLUMNS[1:], "captions"]),
        dataset=None if files else read_dataset(dataset),
        remote=S3Images(root, files) if files and is_address(root) else None,
        gone=pq.read_table(directory / artifact_name(GONE, shard)),
        is_whole=False,
    )
