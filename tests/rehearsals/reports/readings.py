"""Folders, archives and tables of the second round: each case with three neighbors that Hypothesis
draws, and without a problem if all of them are right."""

import io
import json
import string
import tarfile
import zipfile
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from bifocal.datasets.formats.user_files import Reading, UserFiles, read_user_files
from bifocal.search.collection.sources import Source, files_source
from bifocal.search.filters import matching_rows
from tests.rehearsals.reports.world import World, drawn, photo, reported

WORDS = st.text(string.ascii_letters, min_size=2, max_size=8)
NUMBERS = st.lists(st.integers(0, 9999), min_size=4, max_size=4, unique=True)
NAMES = [f"p{number:02}.jpg" for number in range(4)]
Check = Callable[[World, Any], object]


def tried(fault: str, title: str, source: str, shown: Any, others: st.SearchStrategy[Any]) -> Any:
    """Declare a case whose check gets the shown input and three drawn ones; it returns whether one
    is right."""

    def add(check: Check) -> Check:
        def see(world: World) -> list[Any]:
            values = [shown, *drawn(others)]
            places = (World(world.folder / f"{n}", world.shared) for n in range(len(values)))
            return [
                value
                for place, value in zip(places, values, strict=True)
                if not check(place, value)
            ]

        reported(fault, title, source, [])(see)
        return check

    return add


def table(world: World, rows: list[str], header: str = "image,caption", **how: Any) -> Source:
    """Write a table beside four photographs; return what an index reads."""
    world.photos("photos", len(NAMES))
    lines = "\n".join([header, *rows, ""]) if header else "\n".join([*rows, ""])
    world.write(
        f"photos/{how.get('file', 'captions.csv')}", lines.encode(how.get("encoding", "utf-8"))
    )
    return indexed(world)


def indexed(world: World, name: str = "photos") -> Source:
    return files_source(world.folder / name, world.folder / "collection")


def trained(world: World, name: str = "photos", **how: Any) -> UserFiles:
    how = {"needs_captions": True, **how}
    return read_user_files(world.folder / name, world.folder / "unpacked", Reading(**how))


def error_of(read: Callable[..., object], *arguments: object) -> str:
    try:
        read(*arguments)
    except ValueError as error:
        return str(error)
    return ""


@tried(
    "F1",
    "archives of names with dots",
    "webdataset#237, datasets#7150",
    ("2023.05", "2023.06", "zip"),
    st.tuples(WORDS, WORDS, WORDS, st.sampled_from(["zip", "tar"])).map(
        lambda t: (f"{t[0]}.{t[1]}", f"{t[0]}.{t[2]}x", t[3])
    ),
)
def dotted_archives(world: World, names: tuple[str, str, str]) -> object:
    for first, name in zip((0, 4), names, strict=False):
        path = world.path(f"packed/{name}.{names[2]}")
        files = {f"{n}.jpg": photo(first + n) for n in range(4)}
        if names[2] == "zip":
            with zipfile.ZipFile(path, "w") as packed:
                for file, content in files.items():
                    packed.writestr(file, content)
        else:
            with tarfile.open(path, "w") as tar:
                for file, content in files.items():
                    info = tarfile.TarInfo(file)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return len(indexed(world, "packed").entries) == 8


@tried("F2", "a folder that is empty now keeps its images", "immich#12713, #17290", "closed", WORDS)
def emptied_folder(world: World, name: str) -> object:
    world.photos("photos", 3)
    folder = world.photos(f"photos/{name}", 3)
    world.index("photos")
    for file in folder.iterdir():
        file.unlink()
    stays = world.index("photos")
    pruned = world.index("photos", "--prune")
    return "0 removed" in stays and f"{name}: empty: 3 images" in stays and "3 removed" in pruned


MIXED = st.lists(
    st.sampled_from(
        [
            "2024-01-01",
            "2024-01-01 10:00",
            "soon",
            "7",
            "1.5",
            "",
            "true",
            "2024-02-30",
            "2024-05-05T10:00:00+02:00",
        ]
    ),
    min_size=4,
    max_size=4,
)


@tried(
    "F3",
    "a column that is filled in later",
    "own",
    ["2024-01-01 10:00", "2024-01-02", "2024-01-03", "soon"],
    MIXED,
)
def later_values(world: World, later: list[str]) -> object:
    for values in (["2024-01-01", "2024-01-02", "", ""], later, list(reversed(later))):
        table(
            world, [f"{n},a dog,{v}" for n, v in zip(NAMES, values, strict=True)], "image,caption,v"
        )
        output = world.index("photos")
        if "4 images can be searched" not in output or "Traceback" in output:
            return False
    return True


@tried(
    "F5",
    "times outside the years 1 to 9999",
    "harlequin#568, arrow-py#991",
    "9999-12-31T23:59:59-05:00",
    st.builds(
        "{:04}-{:02}-28T{:02}:59:59{}".format,
        st.sampled_from([1, 9999]),
        st.integers(1, 12),
        st.integers(0, 23),
        st.sampled_from(["+14:00", "-12:00", "Z"]),
    ),
)
def far_times(world: World, text: str) -> object:
    source = table(world, [f"{n},a dog,{text}" for n in NAMES], "image,caption,until")
    assert source.metadata is not None
    return source.metadata["meta.until"].to_pylist()[0] == datetime.fromisoformat(text).replace(
        tzinfo=None
    )


@tried(
    "F12",
    "ranges on amounts",
    "pandas#31821",
    "${}",
    st.sampled_from(["{} kg", "{}%", "{},00 €", "no. {}", "-{}", "{}th"]),
)
def amounts(world: World, form: str) -> object:
    items = pa.table({"meta.v": [form.format(n) for n in (5, 10, 200)]})
    return "do not sort" in error_of(matching_rows, items, {"v": {"min": form.format(10)}})


@tried(
    "F13",
    "two stray quotes, the image in any column",
    "D20 again",
    "caption,image",
    st.permutations(["image", "caption", "n"]).map(",".join),
)
def stray_quotes(world: World, header: str) -> object:
    texts = ["a", '"b', 'c"', "d"]
    rows = [
        ",".join(
            {"image": name, "caption": texts[n], "n": f"{n}"}[column]
            for column in header.split(",")
        )
        for n, name in enumerate(NAMES)
    ]
    source = table(world, rows, header)
    return sum(map(bool, source.captions.values())) == 2 and "takes in the row" in str(
        source.rejected
    )


UNUSED = st.tuples(
    WORDS, st.sampled_from([".json", ".csv", ".txt", ".csv.gz", ".ndjson", ".zip", ".dng", ".xlsx"])
)


@tried(
    "F14",
    "files that were not used are said",
    "immich#30319, datasets#6442",
    ("notes", ".json"),
    UNUSED,
)
def unused(world: World, name: tuple[str, str]) -> object:
    world.photos("photos", 3)
    file = "".join(name)
    world.write(f"photos/{file}", "[]")
    return f"was not used, such as {file}" in world.index("photos")


@tried(
    "F15",
    "a table beside an archive",
    "datasets#5761, #7337",
    "images.zip",
    WORDS.map("{}.zip".format),
)
def table_beside(world: World, name: str) -> object:
    with zipfile.ZipFile(world.path(f"packed/{name}"), "w") as packed:
        for number, file in enumerate(NAMES):
            packed.writestr(file, photo(number))
    world.write(
        "packed/metadata.jsonl", "\n".join(json.dumps({"file_name": n, "text": n}) for n in NAMES)
    )
    return (
        indexed(world, "packed").captions == {f"{name}/{n}": [n] for n in NAMES}
        and len(trained(world, "packed").rows.captions) == 4
    )


@tried(
    "F16",
    "links into a cache of the same project",
    "datasets#6853, photoprism#1049",
    ".dvc/cache",
    st.sampled_from([".git/annex/objects", "hub/blobs", ".dvc/cache/files"]),
)
def own_links(world: World, cache: str) -> object:
    world.photos(f"project/{cache}", 3)
    name = "project/hub/snapshots/a" if "blobs" in cache else "project/data"
    (world.folder / name).mkdir(parents=True)
    for number in range(3):
        (world.folder / name / f"{number}.jpg").symlink_to(
            world.folder / "project" / cache / f"p{number:02}.jpg"
        )
    world.photos("private", 1)
    (world.folder / name / "9.jpg").symlink_to(world.folder / "private/p00.jpg")
    return [entry.item_id for entry in indexed(world, name).entries] == ["0.jpg", "1.jpg", "2.jpg"]


@tried(
    "F17",
    "thumbnails and deleted files of a NAS",
    "immich-go#319, photoprism#564",
    "@eaDir",
    st.sampled_from(["#recycle", "$RECYCLE.BIN", "@Recycle", "#snapshot", "lost+found"]),
)
def bins(world: World, name: str) -> object:
    world.photos("photos", 2)
    world.photos(f"photos/deep/{name}/x", 2)
    output = world.index("photos")
    return "2 images can be searched" in output and name in output


TYPES = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.float32(), pa.bool_()]),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda t: pa.map_(pa.string(), t))
        | inner.map(lambda t: pa.struct([("a", t)]))
    ),
    max_leaves=4,
)


@tried("F19", "nested types of Parquet", "kuzu#5816", pa.map_(pa.string(), pa.int64()), TYPES)
def nested(world: World, type_: pa.DataType) -> object:
    world.photos("photos", 4)
    column = pa.array([None] * 4, type_)
    pq.write_table(
        pa.table({"image": NAMES, "caption": ["a dog"] * 4, "v": column}),
        world.path("photos/captions.parquet"),
    )
    source = indexed(world)
    return len(source.captions) == 4 and not source.rejected


@tried(
    "F20",
    "photo.json without a caption",
    "own",
    {"price": 5},
    st.dictionaries(WORDS, st.integers(0, 9) | WORDS, min_size=1, max_size=3),
)
def values_only(world: World, values: dict[str, Any]) -> object:
    values = {f"k{key}": value for key, value in values.items()}
    world.photos("photos", 2)
    world.write("photos/p00.json", json.dumps(values))
    metadata = indexed(world).metadata
    return metadata is not None and all(
        metadata[f"meta.{k}"][0].as_py() == v for k, v in values.items()
    )


@tried(
    "F21",
    "images without a group are no group",
    "own",
    "",
    st.sampled_from(["NA", "null", " ", "NaN"]),
)
def no_group(world: World, empty: str) -> object:
    table(
        world, [f"{n},a dog,{'x' if n == NAMES[0] else empty}" for n in NAMES], "image,caption,who"
    )
    return trained(world, group_column="who").rows.groups == {NAMES[0]: "x"}
