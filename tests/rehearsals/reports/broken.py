"""Rows and files that cannot be read as they are, with drawn neighbors."""

import json
import os
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from bifocal.onnx.metadata import parse_date
from tests.rehearsals.reports.readings import NAMES, WORDS, indexed, table, trained, tried
from tests.rehearsals.reports.world import World, photo


@tried("F25", "one byte of another encoding costs its row", "own", "é", st.sampled_from("äöüñçÉß"))
def bad_byte(world: World, letter: str) -> object:
    world.photos("photos", 4)
    rows = [f"{name},a dog".encode() for name in NAMES]
    rows[2] += letter.encode("cp1252")
    world.write("photos/captions.csv", b"\n".join([b"image,caption", *rows]))
    source = indexed(world)
    return len(source.captions) == 3 and "line 4" in str(source.rejected)


@tried(
    "F28",
    "the exact name wins",
    "own",
    " lead.jpg",
    st.sampled_from(["back\\slash.jpg", "a%20b.jpg", "trail .jpg", "./x.jpg", "A.JPG"]),
)
def exact(world: World, name: str) -> object:
    world.photos("photos", 4)
    for number, file in enumerate({name, name.strip(), name.lower(), name.replace("%20", " ")}):
        world.write(f"photos/{file}", photo(9 + number))
    world.write("photos/captions.jsonl", json.dumps({"image": name, "caption": "a dog"}))
    captions = {image: texts for image, texts in indexed(world).captions.items() if texts}
    return captions == {os.path.normpath(name): ["a dog"]}


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
    "F32",
    "times in the spellings of cameras",
    "own",
    "2013:07:12  4:54:27",
    st.sampled_from(
        [
            "2013: 7:12  4:54:27",
            "2013:07:12:04:54:27",
            "2013:07:12 04:54:27 AM",
            "2013:07:12 04-54-27",
        ]
    ),
)
def camera_times(world: World, text: str) -> object:
    return parse_date(text) == datetime(2013, 7, 12, 4, 54, 27)


BROKEN = st.sampled_from(
    [b"", b"image,caption\n", b"im", b'image,caption\np00.jpg,"a', b"\xff" * 40]
)


@tried(
    "F45",
    "a table that is broken now keeps its captions",
    "immich#12713",
    b'image,caption\np00.jpg,"a',
    BROKEN,
)
def broken_table(world: World, content: bytes) -> object:
    table(world, [f"{n},a dog,5" for n in NAMES], "image,caption,price")
    world.index("photos")
    world.write("photos/captions.csv", content)
    world.index("photos")
    kept = world.captions("photos") == {n: ["a dog"] for n in NAMES}
    return kept and set(world.items("photos", "meta.price").values()) == {5}


@tried(
    "F46",
    "Parquet files of the hub",
    "datasets#6442",
    "data/train-00000-of-00001.parquet",
    st.sampled_from(["captions.parquet", "data/metadata.parquet"]) | WORDS.map("{}.parquet".format),
)
def hub_parquet(world: World, name: str) -> object:
    images = [{"bytes": photo(number), "path": None} for number in range(4)]
    pq.write_table(pa.table({"image": images, "text": ["a dog"] * 4}), world.path(f"hub/{name}"))
    files = [indexed(world, "hub"), indexed(world, f"hub/{name}")]
    said = world.index("hub")
    is_silent = "not used" not in said and "not read" not in said
    return is_silent and [len(source.captions) for source in files] == [4, 4]


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
    "F50",
    "captions of missing pictures go to no others",
    "fiftyone#7057",
    ["cats", "birds", "dogs"],
    st.lists(WORDS.map(str.lower), min_size=2, max_size=4, unique=True),
)
def partial_copy(world: World, kinds: list[str]) -> object:
    world.photos(f"photos/{kinds[-1]}", 4)
    rows = [f"{kind}/{name},a {kind}" for kind in kinds for name in NAMES]
    world.write("photos/captions.csv", "\n".join(["image,caption", *rows]))
    return indexed(world).captions == {f"{kinds[-1]}/{name}": [f"a {kinds[-1]}"] for name in NAMES}


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


@tried("F52", "another folder never replaces a run whose source is away", "own", "products", WORDS)
def other_source(world: World, name: str) -> object:
    world.photos("usb/photos", 4)
    world.index("usb/photos", "--folder", "run")
    for number in range(4):
        world.write(f"new/{name}/p{number:02}.jpg", photo(20 + number))
    (world.folder / "usb").rename(world.folder / "unplugged")
    refused = world.index(f"new/{name}", "--folder", "run")
    moved = world.index("unplugged/photos", "--folder", "run")
    return "name another run folder" in refused and "0 new, 0 changed, 0 removed" in moved
