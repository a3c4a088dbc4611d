"""Tables of the user: columns, types, filters."""

import json
from typing import Any

from tests.rehearsals.reports.world import ROWS, World, caption, reported

IMAGES = [f"p{number:02}.jpg" for number in range(ROWS)]
LISTED = {image: [caption(number)] for number, image in enumerate(IMAGES)}


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


OWN = (
    "item_id",
    "image_id",
    "path",
    "score",
    "captions",
    "meta.x",
    "deleted",
    "row",
    "width",
    "sha256",
    "folder",
)


@reported(
    "D2",
    "columns item_id and image_id beside price",
    "mathesar#4236, refinery#1699",
    [["p03.jpg"], "SKU3", True],
)
def user_columns(world: World) -> Any:
    table(world, "image,caption,item_id,image_id,price", "{image},{caption},SKU{n},10{n},{n}.5")
    dates = world.items("photos", "meta.date").values()
    return [
        found(world, {"price": 3.5}),
        world.items("photos", "meta.item_id")["p03.jpg"],
        all(dates),
    ]


@reported(
    "D2",
    "unseen: further names that Bifocal uses itself, as columns and as JSON keys",
    "CellProfiler#358",
    True,
)
def internal_names(world: World) -> Any:
    table(
        world,
        ",".join(("image", "caption", *OWN)),
        "{image},{caption}," + ",".join(f"{name} {{n}}" for name in OWN),
    )
    kept = all(world.items("photos", f"meta.{name}")["p04.jpg"] == f"{name} 4" for name in OWN)
    world.photos("beside", 3)
    keys = [*OWN, "image", "text"]
    world.write("beside/p01.json", json.dumps({"caption": "a dog", **dict.fromkeys(keys, "mine")}))
    world.write("beside/p02.json", json.dumps({"caption": "mine", "image": "mine"}))
    world.write("beside/p02.txt", "a cat")
    world.index("beside")
    kept = kept and all(world.items("beside", f"meta.{name}")["p01.jpg"] == "mine" for name in keys)
    kept = kept and world.captions("beside") == {"p01.jpg": ["a dog"], "p02.jpg": ["a cat"]}
    return kept and all(
        world.items("beside", f"meta.{name}")["p02.jpg"] == "mine" for name in ("caption", "image")
    )


@reported(
    "D2",
    "unseen: columns called meta.date, '', '😀', 'a.b', ' x ' and with a quote",
    "qiita#2799",
    True,
)
def odd_names(world: World) -> Any:
    names = ["meta.date", "😀", "a.b", "say hi", "__index__", "captions[0]", "$where", "min", "max"]
    table(
        world,
        ",".join(("image", "caption", *names)),
        "{image},{caption}," + ",".join(["v{n}"] * len(names)),
    )
    return all(found(world, {name: "v5"}) == ["p05.jpg"] for name in names)


@reported("D9", "a number in a filter on a date", "photoprism#4743", "error: ")
def number_on_a_date(world: World) -> Any:
    world.photos("photos")
    world.index("photos")
    output = found(world, {"date": {"min": 2020}})
    return output if isinstance(output, str) else f"{len(output)} images"


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
    "D11",
    "numbers of a CSV column in a range",
    "pandas#24681",
    ["p02.jpg", "p03.jpg", "p04.jpg", "p05.jpg"],
)
def numbers(world: World) -> Any:
    table(world, "image,caption,price", "{image},{caption},{n}.5")
    return found(world, {"price": {"min": 2.5, "max": 5.5}})


@reported("D11", "leading zeros and mixed columns stay texts", "pandas#32084", ["007", "7 or 8"])
def leading_zeros(world: World) -> Any:
    table(world, "image,caption,article,mixed", "{image},{caption},00{n},{n} or 8")
    return [world.items("photos", f"meta.{name}")["p07.jpg"] for name in ("article", "mixed")]


@reported(
    "D11",
    "unseen: numbers with gaps, signs, exponents; days; texts that look like numbers",
    "pandas#48712",
    True,
)
def kinds(world: World) -> Any:
    columns = {
        "gap": "",
        "sign": "-4",
        "power": "1e3",
        "day": "2020-05-04",
        "sku": "1_000",
        "comma": '"1,5"',
        "hex": "0x10",
    }
    right = [None, -4, 1000.0, "day", "1_000", "1,5", "0x10"]
    world.photos("photos")
    rows = [",".join((image, caption(n), *columns.values())) for n, image in enumerate(IMAGES)]
    rows[0] = rows[0].replace(",,", ",3,", 1)
    world.write("photos/captions.csv", "\n".join(["image,caption," + ",".join(columns), *rows]))
    world.index("photos")
    seen = [world.items("photos", f"meta.{name}")["p05.jpg"] for name in columns]
    seen[3] = "day" if str(seen[3]).startswith("2020-05-04") else seen[3]
    return seen == right or seen


@reported("D11", "a filter on a column of another type", "own", "error: ")
def wrong_filter(world: World) -> Any:
    table(world, "image,caption,price", "{image},{caption},{n}.5")
    output = found(world, {"price": "cheap"})
    return output if isinstance(output, str) else f"{len(output)} images"


@reported(
    "D13",
    "names of Windows, of another folder, of the folder itself, for URLs",
    "open_clip#144, CLIP-KD#18",
    [LISTED] * 4,
)
def other_places(world: World) -> Any:
    rows = (r"C:\Users\x\photos\{image}", "old/place/{image}", "photos/{image}", "%70{image[1:]}")
    seen = []
    for number, name in enumerate(rows):
        inner = World(world.folder / f"{number}", world.shared)
        inner.photos("photos")
        text = [
            f"{name.replace('{image[1:]}', image[1:]).format(image=image)},{texts[0]}"
            for image, texts in LISTED.items()
        ]
        inner.write("photos/captions.csv", "\n".join(["image,caption", *text]))
        inner.index("photos")
        seen.append(inner.captions("photos"))
    return seen


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
