"""Names, values and messages of the second round: each case with three neighbors that Hypothesis
draws."""

import json
import os
import subprocess
import sys
import tarfile
from datetime import datetime, timedelta, timezone
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import bifocal
from bifocal.datasets.formats.folder import Folder, unused_files
from bifocal.datasets.languages import caption_languages
from bifocal.datasets.tables import typed_texts
from bifocal.search.filters import matching_rows
from tests.bifocal.users import other_user
from tests.rehearsals.reports.readings import NAMES, WORDS, indexed, table, tried
from tests.rehearsals.reports.world import CHECKOUT, World, photo

ZONES = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))
MIDNIGHT = datetime(2024, 3, 3, 0, 30, tzinfo=timezone(timedelta(hours=2)))


@tried(
    "F2", "many images that are damaged together stay", "immich#15515", b"", st.binary(max_size=9)
)
def damaged(world: World, content: bytes) -> object:
    world.photos("photos")
    world.index("photos")
    for number in range(8):
        world.write(f"photos/p{number:02}.jpg", content)
    refused, kept = world.index("photos"), len(world.items("photos", "item_id"))
    return (
        "cannot be decoded now" in refused
        and kept == 12
        and "8 removed" in world.index("photos", "--prune")
    )


@tried(
    "F2",
    "a text that cannot be read keeps its caption",
    "immich#12713",
    b"\xff",
    st.sampled_from([b"a caf\xe9", b"\x80" * 9, b"a \xff\xfe dog"]),
)
def unread_text(world: World, content: bytes) -> object:
    world.photos("photos", 3)
    for number in range(3):
        world.write(f"photos/p{number:02}.txt", f"a dog {number}")
    world.index("photos")
    world.write("photos/p01.txt", content)
    (world.folder / "photos/p02.txt").unlink()  # that is information
    world.index("photos")
    return world.captions("photos") == {"p00.jpg": ["a dog 0"], "p01.jpg": ["a dog 1"]}


@tried(
    "F4",
    "files have the mode of the umask, and another user searches",
    "safetensors#782",
    0o022,
    st.sampled_from([0o002, 0o027, 0o077, 0o026]),
)
def modes(world: World, mask: int) -> object:
    world.photos("photos", 3)
    previous = os.umask(mask)
    try:
        world.index("photos")
    finally:
        os.umask(previous)
    run = world.folder / "runs/photos-index"
    own = [path for path in run.rglob("*") if path.is_file() and path.stat().st_nlink == 1]
    if {path.stat().st_mode & 0o777 for path in own} != {0o666 & ~mask}:
        return False
    for path in (*world.folder.parents, run, *run.rglob("*")):
        if path.stat().st_uid == os.geteuid() and path.is_dir() and len(path.parts) > 2:
            path.chmod(0o755)  # only the modes of files are tried
    bifocal.load(run).search("a star")  # imports what another user may not find
    with other_user():
        readable = {path for path in own if os.access(path, os.R_OK, effective_ids=True)}
        if readable == set(own):
            return len(bifocal.load(run).search("a star")) == 3
    return os.geteuid() == 0 and mask & 0o004 and not readable


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
    "F11",
    "a time is found by the day of its own clock",
    "fastparquet#744, arrow#37110",
    MIDNIGHT,
    st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=ZONES),
)
def own_day(world: World, moment: datetime) -> object:
    text = moment.replace(microsecond=0).isoformat()
    found = table(world, [f"{name},a dog,{text}" for name in NAMES], "image,caption,t").metadata
    zoned = pa.table(
        {"meta.t": pa.array([moment], pa.timestamp("us", moment.strftime("%z")[:3] + ":00"))}
    )
    day = {"t": moment.date().isoformat()}
    assert found is not None
    return matching_rows(found, day).all() and matching_rows(zoned, day).all()


CONDITION = st.sampled_from([5, True, "x", ["a", "b"], {"min": "a"}, {"max": 2.5}, []])


@tried("F18", "a filter on a column without values", "img2dataset#191", "x", CONDITION)
def empty_column(world: World, condition: Any) -> object:
    table(world, [f"{name},a dog," for name in NAMES], "image,caption,v")
    items = indexed(world).metadata
    return items is not None and not matching_rows(items, {"v": condition}).any()


@tried(
    "F26", "a message has no internal name", "own", 5, st.sampled_from([True, {"a": 1}, [[1]], 2.5])
)
def internal_names(world: World, value: Any) -> object:
    world.photos("photos", 2)
    world.write("photos/p00.json", json.dumps({"caption": value, "item_id": "x", "image": "y"}))
    found = indexed(world).rejected
    return len(found) == 1 and "caption is " in str(found) and "x00" not in str(found)


@tried(
    "F27",
    "a caption of another type is listed",
    "own",
    5,
    st.booleans() | st.floats(0, 9) | st.dictionaries(WORDS, WORDS, min_size=1, max_size=2),
)
def odd_captions(world: World, value: Any) -> object:
    world.photos("photos", 4)
    rows = [{"image": name, "caption": value if name == NAMES[1] else "a dog"} for name in NAMES]
    world.write("photos/captions.jsonl", "\n".join(map(json.dumps, rows)))
    source = indexed(world)
    return [place for place, _ in source.rejected] == ["captions.jsonl, line 2"] and len(
        source.captions
    ) == 3


@tried(
    "F30",
    "a fraction beside whole numbers that no fraction holds",
    "img2dataset#191",
    2**60,
    st.integers(2**54, 2**62),
)
def large_whole(world: World, number: int) -> object:
    items = pa.table({"meta.i": [1, 2, number]})
    above, whole = ({"i": {"min": limit}} for limit in (1.5, number))
    return matching_rows(items, above).tolist() == [False, True, True] and matching_rows(
        items, whole
    ).tolist() == [False, False, True]


@tried(
    "F31",
    "versions stay texts",
    "pandas#54665",
    ("1.1", "1.10"),
    st.tuples(st.integers(0, 99), st.integers(1, 99)).map(
        lambda n: (f"{n[0]}.{n[1]}", f"{n[0]}.{n[1]}0")
    ),
)
def versions(world: World, texts: tuple[str, str]) -> object:
    return typed_texts([*texts, ""]) == [*texts, ""]


ADVICE = {
    ".caption": "captions are a table",
    ".xlsx": "captions are a table",
    ".xmp": "captions are a table",
    ".ndjson": "captions are a table",
    ".rar": "unpack others",
    ".dng": "save photographs",
}


@tried(
    "F33",
    "advice that fits the kind of a file",
    "own",
    ".caption",
    st.sampled_from([*ADVICE, ".cls", ".xyz"]),
)
def advice(world: World, suffix: str) -> object:
    (line,) = unused_files(Folder(world.folder, [], [f"p0{suffix}", f"p1{suffix}"]), ())
    given = {text for text in ADVICE.values() if text in line}
    expected = {ADVICE[suffix]} if suffix in ADVICE else set()
    return f"2 {suffix} files were not used" in line and given == expected


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
                tar.addfile(info, BytesIO(content))
    world.write("shards/b.tar", (world.folder / "shards/a.tar").read_bytes()[:9000])
    source = indexed(world, "shards")
    expected = {f"a.tar/{n:04}.{name}.jpg": [f"a dog {n}"] for n in range(3) for name in names[:2]}
    return source.captions == expected and "b.tar" in str(source.rejected)


@tried(
    "F41",
    "results on a terminal with another encoding",
    "own",
    "cp1252",
    st.sampled_from(["ascii", "latin-1", "cp437"]),
)
def encodings(world: World, encoding: str) -> object:
    world.write("photos/一只狗 🐶 дом.jpg", photo(1))
    world.index("photos")
    variables = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(CHECKOUT)}
    command = [
        sys.executable,
        "-P",
        "-m",
        "bifocal",
        "search",
        "a dog",
        "--run",
        "runs/photos-index",
    ]
    done = [
        subprocess.run(
            [*command, *more], cwd=world.folder, env=variables, capture_output=True, check=False
        )
        for more in ([], ["--json"])
    ]
    return not any(each.returncode for each in done) and json.loads(done[1].stdout)["results"]


@tried(
    "F42",
    "languages of captions of two words are not stated",
    "own",
    ("a dog", "a cat"),
    st.tuples(WORDS, WORDS).map(lambda words: tuple(f"a {word}" for word in words)),
)
def short_captions(world: World, texts: tuple[str, str]) -> object:
    return caption_languages([[text] for text in texts] * 20) == {}


@tried(
    "F48",
    "'delete' names the run that it used",
    "own",
    "p00.jpg",
    st.sampled_from(["p01.jpg", "p02.jpg", "p03.jpg"]),
)
def deleted(world: World, name: str) -> object:
    world.photos("photos", 4)
    world.index("photos")
    output = world.bifocal("delete", name)
    return "runs/photos-index" in output and name not in [
        item for item, gone in world.items("photos", "deleted").items() if not gone
    ]
