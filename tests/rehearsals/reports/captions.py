"""Captions beside images: layouts, names, encodings, and tables that cannot be read."""

import json
from datetime import datetime
from typing import Any

from tests.rehearsals.reports.tables import IMAGES, LISTED
from tests.rehearsals.reports.world import World, caption, photo, reported

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
