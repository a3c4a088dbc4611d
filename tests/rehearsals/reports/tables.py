"""Caption tables beside images: names, encodings, quotes and values."""

import json
from typing import Any

from tests.rehearsals.reports.world import ROWS, World, caption, reported

IMAGES = [f"p{number:02}.jpg" for number in range(ROWS)]


def found(world: World, condition: object, name: str = "photos") -> Any:
    """Search with a filter; return the names of the images, or the text of an error."""
    output = world.search(name, "--json", "--where", json.dumps(condition))
    lines = [line for line in output.splitlines() if line.startswith("{")]
    return sorted(hit["image_id"] for hit in json.loads(lines[0])["results"]) if lines else output


def table(world: World, columns: str, row: str, **how: Any) -> World:
    """Write photographs with a table, and index them."""
    world.photos("photos")
    world.table("photos", columns, row, **how)
    world.index("photos")
    return world


@reported("D9", "until a day includes the day", "immich#15151, photoprism#4743", IMAGES[:6])
def until_a_day(world: World) -> Any:
    table(
        world,
        "image,caption,day",
        "{image},{caption},2020-01-{n:02}T13:00:00".replace("{n:02}", "1{n}"),
        count=6,
    )
    return found(world, {"day": {"max": "2020-01-15"}})


@reported(
    "D13",
    "no row names an image of the folder",
    "open_clip#144",
    "captions.csv: 12 rows name no image of the folder",
)
def no_row(world: World) -> Any:
    world.photos("photos")
    world.table("photos", row="other-{n}.png,{caption}")
    return world.index("photos")


@reported("D21", "encoding cp1252 reads a table of Windows", "own", "“smart” – " + caption(0))
def windows_encoding(world: World) -> Any:
    world.photos("photos")
    world.table("photos", row="{image},“smart” – {caption}", encoding="cp1252")
    tables = world.prepare("ImageFolder", world.folder / "photos", encoding="cp1252")
    return tables["captions"][0]["text"]


ENCODINGS = ("utf-8-sig", "utf-16", "utf-32", "utf-16le", "gb18030", "shift_jis", "koi8-r")


@reported(
    "D21",
    "unseen: other encodings are read or are one sentence",
    "own",
    dict.fromkeys(ENCODINGS, True),
)
def encodings(world: World) -> Any:
    seen = {}
    for encoding in ENCODINGS:
        inner = World(world.folder / encoding, world.shared)
        inner.photos("photos")
        inner.table(
            "photos",
            row="{image},собака 犬 {caption}"
            if encoding != "koi8-r"
            else "{image},собака {caption}",
            encoding=encoding,
        )
        output = inner.index("photos")
        is_read = encoding in ("utf-8-sig", "utf-16")
        seen[encoding] = (
            len(inner.captions("photos")) == 12 if is_read else "captions.csv: not read: " in output
        )
    return seen


@reported(
    "D20",
    "a quote that none closes: the line where it opens",
    "pandas#5500, FastCSV#173",
    "line 5: a quote opens here, and none closes it",
)
def open_quote(world: World) -> Any:
    world.photos("photos")
    file = world.table("photos")
    lines = file.read_text().splitlines()
    lines[4] = lines[4].replace(",", ',"')
    file.write_text("\n".join(lines))
    return world.train("photos")


@reported(
    "D11",
    "texts NA, null, None, 1e5 stay captions",
    "pandas#32084, #11839",
    ["NA", "null", "None", "nan", "1e5", "-"],
)
def missing_values(world: World) -> Any:
    texts = ["NA", "null", "None", "nan", "1e5", "-"]
    world.photos("photos", len(texts))
    world.write(
        "photos/captions.csv",
        "\n".join(["image,caption", *(f"{i},{t}" for i, t in zip(IMAGES, texts, strict=False))]),
    )
    world.index("photos")
    return [text for texts in world.captions("photos").values() for text in texts]


@reported(
    "D10",
    "captions null, numbers and lists in JSON lines",
    "img2dataset#344",
    {"p05.jpg": ["a dog"], "p06.jpg": ["a", "b"]},
)
def json_captions(world: World) -> Any:
    world.photos("photos", 7)
    values: list[object] = [None, 5, True, {"raw": "a dog"}, float("nan"), "a dog", ["a", "b", 3]]
    rows = [
        json.dumps({"image": image, "caption": value})
        for image, value in zip(IMAGES, values, strict=False)
    ]
    world.write("photos/captions.jsonl", "\n".join(rows))
    world.index("photos")
    return world.captions("photos")
