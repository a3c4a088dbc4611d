"""Archives, tables, exports and queries of the second round: each case with three neighbors that
Hypothesis draws, and without a problem if all of them are right."""

import io
import json
import string
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import bifocal
from bifocal.datasets.formats.user_files import Reading, UserFiles, read_user_files
from bifocal.datasets.languages import caption_languages
from bifocal.search.collection.sources import Source, files_source
from bifocal.search.keywords import Keywords
from tests.rehearsals.reports.world import World, drawn, photo, reported

WORDS = st.text(string.ascii_letters, min_size=2, max_size=8)
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


def table(world: World, rows: list[str], header: str = "image,caption") -> Source:
    """Write a table beside four photographs; return what an index reads."""
    world.photos("photos", len(NAMES))
    world.write("photos/captions.csv", "\n".join([header, *rows, ""]))
    return indexed(world)


def indexed(world: World, name: str = "photos") -> Source:
    return files_source(world.folder / name, world.folder / "collection")


def trained(world: World, name: str = "photos") -> UserFiles:
    how = Reading(needs_captions=True)
    return read_user_files(world.folder / name, world.folder / "unpacked", how)


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
        indexed(world, "packed").captions == {n: [n] for n in NAMES}
        and len(trained(world, "packed").rows.captions) == 4
    )


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


@tried("F25", "one byte of another encoding costs its row", "own", "é", st.sampled_from("äöüñçÉß"))
def bad_byte(world: World, letter: str) -> object:
    world.photos("photos", 4)
    rows = [f"{name},a dog".encode() for name in NAMES]
    rows[2] += letter.encode("cp1252")
    world.write("photos/captions.csv", b"\n".join([b"image,caption", *rows]))
    source = indexed(world)
    return len(source.captions) == 3 and "line 4" in str(source.rejected)


@tried(
    "F29",
    "spaces before quotes, ends of lines, an empty first line",
    "stable-diffusion-webui#15832",
    ('{}, "a photo, of x"', "image, caption"),
    st.sampled_from(
        [
            ("{},a photo,", "image,caption"),
            ("{},a photo,,", "image,caption,,"),
            ("{},a photo", "\nimage,caption"),
            ('{};  "a; photo"', "image;caption"),
        ]
    ),
)
def csv_forms(world: World, form: tuple[str, str]) -> object:
    source = table(world, [form[0].format(name) for name in NAMES], form[1])
    return [len(texts) for texts in source.captions.values()] == [1] * 4 and '"' not in str(
        source.captions
    )


@tried(
    "F46",
    "Parquet files of the hub",
    "datasets#6442",
    "data/train-00000-of-00001.parquet",
    WORDS.map("{}.parquet".format),
)
def hub_parquet(world: World, name: str) -> object:
    images = [{"bytes": photo(number), "path": None} for number in range(4)]
    pq.write_table(pa.table({"image": images, "text": ["a dog"] * 4}), world.path(f"hub/{name}"))
    files = [indexed(world, "hub"), indexed(world, f"hub/{name}")]
    return [len(source.captions) for source in files] == [4, 4]


@tried(
    "F49",
    "labels beside images are no captions",
    "own",
    "0 0.51 0.4 0.2 0.3",
    st.builds(
        "{} {:.3f} {:.3f} {:.3f} {:.3f}".format, st.integers(0, 80) | WORDS, *4 * [st.floats(0, 1)]
    ),
)
def labels(world: World, line: str) -> object:
    world.photos("photos", 3)
    for number in range(3):
        world.write(f"photos/p{number:02}.txt", f"{line}\n{line}\n")
    return not any(indexed(world).captions.values())


@tried(
    "F51",
    "a table of another program below",
    "datasets#6442",
    "SourceFile,Make,ISO",
    st.lists(WORDS.map("x{}".format), min_size=1, max_size=3, unique=True).map(",".join),
)
def foreign_table(world: World, header: str) -> object:
    world.write("photos/camera/metadata.csv", f"{header}\n" + f"{header}\n" * 50)
    source = table(world, [f"{name},a dog" for name in NAMES])
    files = trained(world)
    broken = [entry for entry in files.rejected if not entry.intentional]
    return source.metadata is None and len(source.captions) == 4 and not broken


@tried(
    "F9",
    "values that JSON and SQL lack, in an export",
    "embedbase#107",
    float("nan"),
    st.sampled_from([float("inf"), "a\0b", "\ud83d", 10**19, True]),
)
def exported_values(world: World, value: Any) -> object:
    world.photos("photos", 4)
    rows = [json.dumps({"image": name, "caption": "a dog", "v": value}) for name in NAMES]
    world.write("photos/captions.jsonl", "\n".join(rows))
    world.index("photos")
    world.bifocal("export", "out", "--format", "parquet", "--run", "runs/photos-index")
    found = pq.read_table(next((world.folder / "out").glob("*.parquet")))
    values, kept = found["meta_v"].to_pylist(), world.items("photos", "meta.v").values()
    return len(values) == 4 and [*map(str, values)] == [*map(str, kept)]


@tried(
    "F10",
    "names of folders and columns in an export",
    "qdrant#1956, questdb#412",
    ("Bücher", "a.b"),
    st.tuples(
        st.sampled_from(["my photos", 'say "hi"', "$(touch x)", "it's; --"]),
        st.sampled_from(["a b", "select", 'x"y', "ключ", "a.b.c"]),
    ),
)
def exported_names(world: World, names: tuple[str, str]) -> object:
    world.photos(names[0], 4)
    rows = [json.dumps({"image": name, "caption": "a dog", names[1]: "v"}) for name in NAMES]
    world.write(f"{names[0]}/captions.jsonl", "\n".join(rows))
    world.index(names[0], "--folder", f"run {names[0]}")
    world.bifocal("export", "out", "--format", "parquet", "--run", f"run {names[0]}")
    files = {path.name for path in (world.folder / "out").iterdir()}
    found = pq.read_table(next((world.folder / "out").glob("*.parquet")))
    code = [name for name in files if name.endswith((".py", ".sh", ".sql"))]
    return found[f"meta_{names[1]}"].to_pylist() == ["v"] * 4 and not code


@tried(
    "F26", "a message has no internal name", "own", 5, st.sampled_from([True, {"a": 1}, [[1]], 2.5])
)
def internal_names(world: World, value: Any) -> object:
    world.photos("photos", 2)
    world.write("photos/p00.json", json.dumps({"caption": value, "item_id": "x", "image": "y"}))
    found = indexed(world).rejected
    return len(found) == 1 and "caption is " in str(found) and "x00" not in str(found)


@tried(
    "F34",
    "a name that exists nowhere",
    "label-studio#5438",
    "/data/upload/1/abcd-{}",
    st.sampled_from(
        ["https://host/a/x-{}", "/old/place/x{}", "s3://bucket/{}x", "C:\\photos\\x{}"]
    ),
)
def nowhere(world: World, form: str) -> object:
    source = table(world, [f"{form.format(name)},a dog" for name in NAMES])
    said = str(source.rejected)
    return (
        "4 rows name no image of the folder" in said
        and "outside" not in said
        and str(world.folder) not in said
    )


@tried(
    "F39",
    "parts of a sample in a shard of WebDataset",
    "webdataset#20, open_clip#480",
    ("left", "right", "caption"),
    st.lists(WORDS, min_size=3, max_size=3, unique_by=str.lower).map(tuple),
)
def parts(world: World, names: tuple[str, str, str]) -> object:
    with tarfile.open(world.path("shards/a.tar"), "w") as tar:
        for number in range(3):
            files = {
                f"{name}.jpg": photo(2 * number + place) for place, name in enumerate(names[:2])
            }
            for end, content in {**files, f"{names[2]}.txt": f"a dog {number}".encode()}.items():
                info = tarfile.TarInfo(f"{number:04}.{end}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    world.write("shards/b.tar", (world.folder / "shards/a.tar").read_bytes()[:9000])
    source = indexed(world, "shards")
    expected = {f"a.tar/{n:04}.{name}.jpg": [f"a dog {n}"] for n in range(3) for name in names[:2]}
    return source.captions == expected and "b.tar" in str(source.rejected)


@tried(
    "F42",
    "languages of captions of two words are not stated",
    "own",
    ("a dog", "a cat"),
    st.tuples(WORDS, WORDS).map(lambda words: tuple(f"a {word}" for word in words)),
)
def short_captions(world: World, texts: tuple[str, str]) -> object:
    return caption_languages([[text] for text in texts] * 20) == {}


LETTERS = st.text(st.characters(categories=["Ll", "Lo"]), min_size=3, max_size=9)


def keywords_of(*captions: str) -> Keywords:
    names = [str(row) for row in range(len(captions))]
    texts = pa.array([[caption] for caption in captions], pa.list_(pa.string()))
    return Keywords.of(pa.table({"item_id": names, "captions": texts}))


@tried(
    "F7",
    "a letter of a sentence without spaces",
    "immich#24285",
    "狗",
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF),
)
def letter(world: World, sign: str) -> bool:
    return keywords_of(f"一只{sign}在雪地里奔跑", "cats").search(sign, 9).tolist() == [0]


@tried("F22", "a query that is not UTF-8", "own", "caf\udce9", LETTERS.map("\udc80{}".format))
def encoding(world: World, query: str) -> bool:
    run = ("--run", world.shared.demo)
    outputs = [
        world.bifocal("search", query, *run),
        world.bifocal("search", "a star", "--plus", query, *run),
        world.bifocal("search", "a star", "--minus", query, *run),
        world.bifocal("where", world.shared.demo / "images" / "00001.jpg", query, *run),
    ]
    return all("is not UTF-8" in output and "Traceback" not in output for output in outputs)


WRONG: dict[str, Callable[[Any], object]] = {
    "None": lambda model: model.encode_text([None]),
    "a gap": lambda model: model.encode_text(["a star", float("nan")]),
    "a path": lambda model: model.encode_image("a/b.jpg"),
    "a number": lambda model: model.search(5),
    "an array": lambda model: model.encode_image([np.zeros((3, 4, 4))]),
}


@tried("F38", "a wrong argument in Python", "txtai#93", "None", st.sampled_from(sorted(WRONG)))
def argument(world: World, name: str) -> bool:
    model = bifocal.load(world.shared.demo)
    assert model.encode_text([]).shape == model.encode_image([]).shape
    try:
        WRONG[name](model)
    except TypeError as error:
        return "got" in str(error) or "expected" in str(error)
    return False
