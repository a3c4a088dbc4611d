"""Caption tables and files beside images: columns of the user, types, layouts, spellings of names,
encodings."""

import json
from datetime import datetime
from typing import Any

from tests.rehearsals.reports.world import ROWS, World, caption, photo, reported

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


LAYOUTS = {
    "captions.txt": ("image,caption", "{image},{caption}"),
    "results.csv": ("image_name| comment_number| comment", "{image}| 0| {caption}"),
    "captions.tsv": ("filepath\ttitle", "{image}\t{caption}"),
    "metadata.csv": ("file_name,text", "{image},{caption}"),
    "Captions.CSV": ("Image ,CAPTION", "{image},{caption}"),
    "metadata.jsonl": ("", '{{"file_name": "{image}", "text": "{caption}"}}'),
}


@reported(
    "D14",
    "Flickr8k and Flickr30k of Kaggle, open_clip, Hugging Face",
    "OpenAI-CLIP#2, open_clip#789",
    dict.fromkeys(LAYOUTS, True),
)
def layouts(world: World) -> Any:
    seen = {}
    for file, (columns, row) in LAYOUTS.items():
        inner = World(world.folder / file.replace(".", "-"), world.shared)
        inner.photos("photos/Images" if file == "captions.txt" else "photos")
        inner.table("photos", columns, row, file=file)
        inner.index("photos")
        prefix = "Images/" if file == "captions.txt" else ""
        seen[file] = inner.captions("photos") == {
            prefix + image: texts for image, texts in LISTED.items()
        }
    return seen


@reported(
    "D14",
    "files that 'train' does not read are named",
    "kohya_ss#927, gallery#404, diffusers#2099",
    "p00.caption",
)
def unread_sidecars(world: World) -> Any:
    world.photos("photos")
    for image in IMAGES:
        world.write(f"photos/{image[:3]}.caption", "a dog")
    return world.train("photos")


@reported(
    "D14",
    "unseen: photo.jpg.txt, photo.jpg.json, captions.json: named by 'train'",
    "open-noodle/gallery#404",
    [True] * 3,
)
def unread_files(world: World) -> Any:
    seen = []
    for name in ("{image}.txt", "{image}.json", "captions.json"):
        inner = World(world.folder / f"{len(seen)}", world.shared)
        inner.photos("photos")
        for image in IMAGES:
            inner.write(
                f"photos/{name.format(image=image)}",
                json.dumps([{"image": image, "caption": "a dog"}]),
            )
        output = inner.train("photos")
        seen.append(
            f"not used, such as {name.format(image=IMAGES[0])}" in output
            and "Traceback" not in output
        )
    return seen


@reported("D14", "unseen: the same files beside an index are counted or read", "kohya_ss#927", True)
def unread_beside_an_index(world: World) -> Any:
    world.photos("photos")
    for image in IMAGES:
        world.write(f"photos/{image[:3]}.caption", "a dog")
    return "12 .caption files were not used, such as p00.caption" in world.index("photos")


@reported(
    "D15",
    "a table of exiftool beside photographs",
    "datasets#6777",
    "metadata.csv: not read: metadata.csv: no column is recognized",
)
def foreign_table(world: World) -> Any:
    world.photos("photos")
    world.table("photos", "SourceFile,Make", "{n},Canon", file="metadata.csv")
    output = world.index("photos")
    return output if "12 images can be searched" in output else "no index"


@reported(
    "D15",
    "train/ and test/ with metadata.jsonl",
    "datasets#6442, #7337",
    [24, {"train": 12, "test": 12}],
)
def splits_of_folders(world: World) -> Any:
    for split in ("train", "test"):
        world.photos(f"photos/{split}")
        world.table(
            f"photos/{split}",
            "",
            '{{"file_name": "{image}", "text": "{caption}"}}',
            file="metadata.jsonl",
        )
    world.index("photos")
    splits = list(world.items("photos", "meta.split").values())
    return [
        len(world.captions("photos")),
        {split: splits.count(split) for split in ("train", "test")},
    ]


@reported(
    "D15",
    "a table in Windows-1252 beside an index",
    "own",
    "save the table as UTF-8; the argument encoding reads others",
)
def windows_table(world: World) -> Any:
    world.photos("photos")
    world.table("photos", row="{image},“smart” – {caption}", encoding="cp1252")
    output = world.index("photos")
    return output if "12 images can be searched" in output else "no index"


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


@reported("D6", "photo.TXT beside photo.JPG, mixed with .txt", "kohya_ss#988", LISTED)
def upper_case(world: World) -> Any:
    for number, image in enumerate(IMAGES):
        world.write(f"photos/{image}", photo(number))
        world.write(f"photos/{image[:3]}.{'TXT' if number % 2 else 'txt'}", caption(number) + "\n")
    world.index("photos")
    return world.captions("photos")


@reported(
    "D6",
    "unseen: .Txt and .JSON beside .JPG, with marks of UTF-8, by 'inspect'",
    "kohya_ss#1370",
    "12  ",
)
def mixed_case(world: World) -> Any:
    for number, image in enumerate(IMAGES):
        world.write(f"photos/{image[:3]}.JPG", photo(number))
        if number % 2:
            world.write(f"photos/{image[:3]}.Txt", ("\ufeff" + caption(number) + "\r\n").encode())
        else:
            world.write(f"photos/{image[:3]}.JSON", json.dumps({"caption": caption(number)}))
    lines = world.bifocal("inspect", "photos").splitlines()
    return next(line for line in lines if line.strip().startswith("captions "))


@reported(
    "D17",
    "names of macOS and of Linux, both with captions",
    "immich#17473",
    ["the composed one", "the decomposed one"],
)
def composed_twins(world: World) -> Any:
    names = {"cafe\u0301.jpg": "the decomposed one", "caf\u00e9.jpg": "the composed one"}
    world.write(
        "photos/captions.csv",
        "\n".join(["image,caption", *(f"{name},{text}" for name, text in names.items())]),
    )
    for number, name in enumerate(names):
        world.write(f"photos/{name}", photo(number))
    world.index("photos")
    captions = world.captions("photos")
    return [captions[name][0] for name in sorted(names, reverse=True)]


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
    "D20",
    "two stray quotes: a caption that holds rows is listed",
    "pandas#22661, turicreate#1692",
    [7, True],
)
def stray_quotes(world: World) -> Any:
    world.photos("photos")
    file = world.table("photos")
    lines = file.read_text().splitlines()
    lines[4], lines[8] = lines[4].replace(",", ',"'), lines[8] + '"'
    file.write_text("\n".join(lines))
    output = world.index("photos")
    return [len(world.captions("photos")), "captions.csv, line 5: " in output]


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


@reported(
    "D20",
    "unseen: 200,000 columns, a row of 5 MB, a field of 2 MB",
    "csv-diff#41, tabview#150",
    True,
)
def large_tables(world: World) -> Any:
    world.photos("photos", 3)
    world.write(
        "photos/captions.csv", "image,caption," + ",".join(f"c{n}" for n in range(200_000)) + "\n"
    )
    wide = world.index("photos")
    world.write(
        "photos/captions.csv", f"image,caption\np00.jpg,{'a dog ' * 400_000}\np01.jpg,a cat\n"
    )
    long = world.index("photos")
    texts = [text for texts in world.captions("photos").values() for text in texts]
    return (
        "captions.csv: not read: " in wide and "Traceback" not in wide + long and "a cat" in texts
    )


@reported(
    "D11",
    "unseen: a date column of days, times and blanks",
    "pandas#24681",
    [datetime(2020, 1, 2), None],
)
def blank_days(world: World) -> Any:
    world.photos("photos", 3)
    rows = ["p00.jpg,a dog,2020-01-01", "p01.jpg,a cat,2020-01-02", "p02.jpg,a boat,"]
    world.write("photos/captions.csv", "\n".join(["image,caption,day", *rows]))
    world.index("photos")
    days = world.items("photos", "meta.day")
    return [days["p01.jpg"] and datetime(*days["p01.jpg"].timetuple()[:3]), days["p02.jpg"]]
