"""Items of a collection whose images are not listed: they are gone, or unknown and stay."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from bifocal.datasets.base import META
from bifocal.datasets.tables import one_type, with_type
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import TIME, without
from bifocal.search.collection.sources import Entry, Source

FULL, GONE = "has files", "gone"
PRUNED = ("empty", "no longer there")
MANY = 5
"""Images that are not removed together unless it is asked for, if they are half of a folder."""


def with_unknown(source: Source, previous: Collection | None, *, prune: bool = False) -> Source:
    """Return a source with the items of a previous collection that may still be there, and those
    that are ``gone``.

    An image that is not listed is unknown below a folder that cannot be listed, below one that is
    empty, such as a place where no disk is mounted, and in a table that was not read whole. Many
    images that are gone together stay too, unless ``prune`` asks for their removal.

    Raises:
        ValueError: an archive cannot be read, and the collection has images of it.
    """
    if previous is None:
        return source
    lost = without(previous.items, [entry.item_id for entry in source.entries])
    if source.dataset is not None:
        return replace(source, gone=lost)
    missing = live_images(lost)
    if source.unpacked and source.unread and missing:
        raise ValueError(
            f"{', '.join(source.unread)} cannot be read, and {len(missing):,} images of the "
            "collection are not in the others: repair it, or take it out of the folder"
        )
    reasons, states = dict[str, tuple[str, str]](), dict[str, str]()
    for item_id, name in missing.items():
        if reason := _unknown(source, name, states, prune=prune):
            reasons[item_id] = reason
    gone = {item_id: name for item_id, name in missing.items() if item_id not in reasons}
    if gone and not prune:
        place = _emptied(gone.values(), live_images(previous.items).values())
        if place is not None:
            reasons |= dict.fromkeys(gone, (place or source.root, PRUNED[1]))
    notes = [
        (
            place,
            f"{what}: {count:,} images of the collection stay"
            f"{'; prune removes them' if what in PRUNED else ''}",
        )
        for (place, what), count in Counter(reasons.values()).items()
    ]
    entries = [Entry(item_id, missing[item_id], kept=True) for item_id in reasons]
    metadata = source.metadata
    if metadata is not None and entries:
        rows = pa.table({"item_id": pa.array(list(reasons), pa.string())})
        metadata = pa.concat_tables([metadata, rows], promote_options="default")
    return replace(
        source,
        prune=prune,
        entries=[*source.entries, *entries],
        metadata=metadata,
        rejected=[*source.rejected, *notes],
        gone=without(lost, list(reasons)),
    )


def live_images(items: pa.Table) -> dict[str, str]:
    """Return the images of the items that are not deleted, or their ids, by their ids."""
    live = items.filter(pc.invert(items.column("deleted")))
    ids = live.column("item_id")
    images = pc.coalesce(live.column("image"), ids).to_pylist()
    return dict(zip(ids.to_pylist(), images, strict=True))


def _unknown(
    source: Source, name: str, states: dict[str, str], *, prune: bool
) -> tuple[str, str] | None:
    """Return the place and the reason for which an image is unknown; None for one that is gone."""
    for place in source.unknown:
        if name.startswith(f"{place}/"):
            return place, "cannot be listed"
    if source.by_table and source.unread:
        return source.unread[0], "not read whole"
    if source.folder is None or source.remote is not None or source.unpacked or prune:
        return None
    for parent in reversed(PurePosixPath(name).parents[:-1]):
        place = str(parent)
        if place not in states:
            states[place] = _state(source.folder / place)
        if states[place] != FULL:
            return None if states[place] == GONE else (place, states[place])
    return None


def check_lost(lost: Iterable[tuple[str, str]], items: Iterable[str]) -> None:
    """Raise ``ValueError`` if many images of a collection, with reasons, are lost together."""
    reasons = dict(lost)
    if _emptied(reasons, items) is not None:
        name, reason = next(iter(reasons.items()))
        raise ValueError(
            f"{len(reasons):,} images of the collection cannot be decoded now, such as {name}: "
            f"{reason}: bring them back, or prune them"
        )


def _state(folder: Path) -> str:
    try:
        return FULL if any(folder.iterdir()) else PRUNED[0]
    except (FileNotFoundError, NotADirectoryError):
        return "a link to nothing" if folder.is_symlink() else GONE
    except OSError as error:
        return f"cannot be listed: {error.strerror}"


def _emptied(gone: Iterable[str], items: Iterable[str]) -> str | None:
    """Return the folder that lost many images, and half of those it had; None if there is none."""
    lost, had = (Counter(_folders(names)) for names in (gone, items))
    places = [place for place, count in lost.items() if count >= max(MANY, had[place] / 2)]
    return max(places, key=lambda place: (lost[place], len(place)), default=None)


def _folders(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from (
            "" if str(parent) == "." else str(parent) for parent in PurePosixPath(name).parents
        )


def with_former_values(
    captions: Mapping[str, Sequence[str]],
    metadata: pa.Table | None,
    former: pa.Table,
    unknown: Container[str],
) -> tuple[Mapping[str, Sequence[str]], pa.Table | None]:
    """Return captions and metadata in which items whose values are unknown have the former ones,
    unless there are new ones."""
    if not unknown:
        return captions, metadata
    ids = former.column("item_id").to_pylist()
    rows = {item_id: row for row, item_id in enumerate(ids) if item_id in unknown}
    texts = former.column("captions").to_pylist()
    kept = {item_id: texts[row] for item_id, row in rows.items() if not captions.get(item_id)}
    if metadata is None:
        return {**captions, **kept}, None
    places = [rows.get(item_id) for item_id in metadata.column("item_id").to_pylist()]
    for name in (name for name in former.column_names if name.startswith(META)):
        is_new = name not in metadata.column_names
        new = [None] * len(places) if is_new else metadata.column(name).to_pylist()
        old = former.column(name).to_pylist()
        values = [
            old[row] if value is None and row is not None else value
            for value, row in zip(new, places, strict=True)
        ]
        types = [
            former.schema.field(name).type,
            *([] if is_new else [metadata.schema.field(name).type]),
        ]
        column = pa.chunked_array([one_type(values)])
        if not pa.types.is_null(types[-1]):
            column, _ = with_type(column, types[-1])
        if types[-1] == TIME:  # dates of files keep their unit, or all would be read again
            column = column.cast(TIME, safe=False)
        if not is_new:
            place = metadata.column_names.index(name)
            metadata = metadata.set_column(place, name, column)
        elif column.null_count < len(column):
            metadata = metadata.append_column(name, column)
    return {**captions, **kept}, metadata
