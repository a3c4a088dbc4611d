"""Neighbors of the second round: links and folders that cannot be read, rows that quotes swallow,
names of archives, pictures in values; each case with three inputs that Hypothesis draws."""

import base64
import io
import json
import os
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.images import open_image
from bifocal.serving.service.models import RunSource
from tests.bifocal.users import other_user
from tests.rehearsals.reports.readings import NAMES, WORDS, indexed, table, trained, tried
from tests.rehearsals.reports.world import CHECKOUT, World, photo


def captioned(world: World) -> Path:
    """Index four photographs with a table; return the folder of the photographs."""
    table(world, [f"{name},a dog {n},{n}" for n, name in enumerate(NAMES)], "image,caption,price")
    world.index("photos")
    return world.folder / "photos"


@tried(
    "F2",
    "a link to a place that is away now is not gone",
    "immich#15515, git-annex",
    "captions.csv",
    st.sampled_from(["p00.jpg", "p01.jpg", "p02.jpg", "p03.jpg"]),
)
def dangling(world: World, name: str) -> object:
    photos = captioned(world)
    (photos / name).unlink()
    (photos / name).symlink_to(f"/nowhere/{name}")
    output = world.index("photos")
    values = set(world.items("photos", "meta.price").values())
    return name in output and values == {0, 1, 2, 3} and len(world.captions("photos")) == 4


@tried("F2", "a folder of links to a disk that is away now", "immich#12713", "usb", WORDS)
def unplugged(world: World, name: str) -> object:
    captioned(world)
    world.photos(f"disk/{name}", 3)
    (world.folder / "photos" / name).symlink_to(world.folder / "disk" / name)
    world.index("photos", "--follow-links")
    (world.folder / "disk").rename(world.folder / "away")
    return "7 images can be searched: 0 new, 0 changed, 0 removed" in world.index(
        "photos", "--follow-links"
    )


@tried(
    "F2",
    "a folder that can be listed, and not read",
    "LibrePhotos#167",
    "captions.csv",
    st.sampled_from(["captions.parquet", "p00.txt", "metadata.jsonl"]),
)
def unsearchable(world: World, name: str) -> object:
    world.photos("photos", 4)
    world.write(f"photos/below/{name}", "image,caption\n")
    world.photos("photos/below", 2)
    for path in (*world.folder.parents, world.folder, world.folder / "photos"):
        if path.stat().st_uid == os.geteuid() and len(path.parts) > 2:
            path.chmod(0o755)
    (world.folder / "photos/below").chmod(0o744 if os.geteuid() == 0 else 0o444)
    try:
        with other_user():
            names = [entry.item_id for entry in indexed(world).entries]
    finally:
        (world.folder / "photos/below").chmod(0o755)
    return len(names) == 6


@tried(
    "F13",
    "two stray quotes, names in any spelling, any column",
    "D20 again",
    ("/old/place/{}", "image,caption,n"),
    st.tuples(
        st.sampled_from(["./{}", "C:\\x\\{}", "s3://bucket/{}", "  {} ", "old/{}"]),
        st.permutations(["image", "caption", "n"]).map(",".join),
    ),
)
def swallowed(world: World, form: tuple[str, str]) -> object:
    texts = ["a", '"b', 'c"', "d"]
    lines = [{"image": form[0].format(n), "caption": "a dog", "n": "1"} for n in NAMES]
    for column in ("caption", "n"):
        rows = [
            ",".join({**line, column: text}[name] for name in form[1].split(","))
            for line, text in zip(lines, texts, strict=True)
        ]
        place = World(world.folder / column, world.shared)
        source = table(place, rows, form[1])
        right = {n: texts[k] if column == "caption" else "a dog" for k, n in enumerate(NAMES)}
        captions = {image: found[0] for image, found in source.captions.items() if found}
        if captions.items() > right.items() or "takes in the row" not in str(source.rejected):
            return False
    return True


@tried(
    "F13",
    "names without a suffix that quotes swallow",
    "D20 again",
    "{}",
    st.sampled_from(["./{}", "old/{}", "C:\\x\\{}"]),
)
def swallowed_stems(world: World, form: str) -> object:
    texts = ["a", '"b', 'c"', "d"]
    rows = [f"{form.format(n[:3])},{text}" for n, text in zip(NAMES, texts, strict=True)]
    return "takes in the row" in str(table(world, rows).rejected)


@tried(
    "F54",
    "captions of several lines stay whole",
    "D20 again",
    ("a dog", "left, right"),
    st.tuples(WORDS, st.lists(WORDS, min_size=2, max_size=3).map(", ".join)),
)
def lines(world: World, texts: tuple[str, str]) -> object:
    rows = [f'{name},"{texts[0]}\n{texts[1]}"' for name in NAMES]
    captions = table(world, rows).captions
    return captions == {name: ["\n".join(texts)] for name in NAMES}


@tried(
    "F44",
    "the column of images decides the delimiter",
    "pandas#5500",
    ('"image","caption","size; cm; in; x"', '{},a dog,"5; 6"', "captions.csv"),
    st.sampled_from(
        [
            ("image\tcaption\tsize, cm, in, one", "{}\ta dog\tx", "captions.csv"),
            ("image,caption", "{},a dog", "captions.tsv"),
            ("image;caption;size, cm, in, one", "{};a dog;x", "captions.csv"),
            ('"image"|"a, b, c, d"|"caption"', "{}|x|a dog", "captions.csv"),
        ]
    ),
)
def delimiters(world: World, form: tuple[str, str, str]) -> object:
    header, row, file = form
    source = table(world, [row.format(name) for name in NAMES], header, file=file)
    return source.captions == {name: ["a dog"] for name in NAMES}


@tried("F1", "a second archive changes no names of the first", "webdataset#237", "b.zip", WORDS)
def second_archive(world: World, name: str) -> object:
    for first, file in enumerate(("a.zip", f"{name.removesuffix('.zip')}x.zip")):
        with zipfile.ZipFile(world.path(f"packed/{file}"), "w") as packed:
            for number in range(6):
                packed.writestr(f"{number}.jpg", photo(6 * first + number))
        output = world.index("packed")
    return "12 images can be searched: 6 new, 0 changed, 0 removed" in output


@tried(
    "F43",
    "names of a zip file without the mark of UTF-8, as macOS writes it",
    "photoprism#1049",
    "café",
    st.text(st.characters(categories=["Ll", "Lo"], min_codepoint=0xC0), min_size=1, max_size=8),
)
def unmarked(world: World, name: str) -> object:
    plain = "n" * len(name.encode())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr(f"{plain}.jpg", photo(1))
        packed.writestr("captions.csv", f"image,caption\n{name}.jpg,a dog\n")
    content = buffer.getvalue().replace(f"{plain}.jpg".encode(), f"{name}.jpg".encode())
    world.write("packed/a.zip", content)
    return indexed(world, "packed").captions == {f"a.zip/{name}.jpg": ["a dog"]}


@tried(
    "F28",
    "a text belongs to the image of its exact name",
    "D17 again",
    "caf\u00e9",
    st.sampled_from(["\u00fc", "\ud55c\uae00", "\u00e5ngstr\u00f6m", "Zo\u00eb"]),
)
def twins(world: World, name: str) -> object:
    other = unicodedata.normalize("NFD", name)
    world.write(f"photos/{name}.jpg", photo(1))
    world.write(f"photos/{other}.jpg", photo(2))
    world.write(f"photos/{name}.txt", "a dog")
    return {i: t for i, t in indexed(world).captions.items() if t} == {f"{name}.jpg": ["a dog"]}


@tried(
    "F36",
    "a caption of signs that nobody sees is none",
    "own",
    "\u200b",
    st.text("\u200b\u2060\ufeff\u200e \u00ad", min_size=1, max_size=5),
)
def invisible(world: World, text: str) -> object:
    world.photos("photos", 2)
    rows = [{"image": NAMES[0], "caption": text}, {"image": NAMES[1], "caption": "a dog"}]
    world.write("photos/captions.jsonl", "\n".join(map(json.dumps, rows)))
    return {i: t for i, t in indexed(world).captions.items() if t} == {NAMES[1]: ["a dog"]}


@tried(
    "F23",
    "a picture in a value of photo.json is left out by name",
    "labelme",
    ("imageData", 9000),
    st.tuples(WORDS.map("x{}".format), st.integers(8000, 40000)),
)
def picture_value(world: World, value: tuple[str, int]) -> object:
    world.photos("photos", 3)
    picture = base64.b64encode(os.urandom(value[1])).decode()
    world.write(
        "photos/p00.json", json.dumps({value[0]: picture, "width": 640, "caption": "a dog"})
    )
    source = indexed(world)
    assert source.metadata is not None
    columns = set(source.metadata.column_names)
    return (
        "meta.width" in columns
        and f"meta.{value[0]}" not in columns
        and value[0] in str(source.rejected)
        and source.captions == {"p00.jpg": ["a dog"]}
    )


def latin_text(world: World) -> None:
    with open(os.fsencode(world.folder / "photos") + b"/caf\xe9.txt", "w"):  # noqa: PTH123 - bytes
        pass


STRAYS: dict[str, Any] = {
    "a text of another encoding": latin_text,
    "a link to a folder": lambda world: (world.folder / "photos/more").symlink_to(world.folder),
    "a link to nothing": lambda world: (world.folder / "photos/notes").symlink_to("/nowhere"),
    "a link out": lambda world: (world.folder / "photos/notes").symlink_to("/etc/hostname"),
    "a text without a photograph": lambda world: world.write("photos/README.txt", "read me"),
    "a hidden folder": lambda world: world.photos("photos/.trash", 2),
    "a bin": lambda world: world.photos("photos/@eaDir", 2),
}


@tried(
    "F47",
    "one stray file stops no training",
    "own",
    "a text of another encoding",
    st.sampled_from(sorted(STRAYS)),
)
def stray(world: World, name: str) -> object:
    table(world, [f"{image},a dog {n}" for n, image in enumerate(NAMES)])
    STRAYS[name](world)
    files = trained(world)
    return len(files.rows.captions) == 4 and not [
        entry for entry in files.rejected if not entry.intentional
    ]


@tried(
    "F37",
    "a JPEG without its end is whole, a cut one is not",
    "Pillow#2574",
    (2, False, 90),
    st.tuples(st.sampled_from([1, 2]), st.booleans(), st.integers(30, 95)),
)
def unended(world: World, how: tuple[int, bool, int]) -> object:
    content = photo(1, 480, progressive=how[1], quality=how[2])
    whole, image = open_image(content), open_image(content[: -how[0]])
    cut = world.write("photos/cut.jpg", content[: len(content) // 4])
    world.photos("photos", 1)
    return whole.tobytes() == image.tobytes() and f"{cut.name}: cannot be decoded" in world.index(
        "photos"
    )


@tried(
    "F14",
    "hidden folders are said",
    "photoprism#555",
    ".thumbnails",
    WORDS.map(".{}".format),
)
def hidden(world: World, name: str) -> object:
    world.photos("photos", 2)
    world.photos(f"photos/deep/{name}", 2)
    output = world.index("photos")
    world.photos(f"only/{name}", 1)
    return f"such as deep/{name}: hidden" in output and f"{name}: hidden" in world.index("only")


@tried(
    "F35",
    "a photograph that cannot be read costs its place on the sheet",
    "deja-vu#904",
    b"",
    st.binary(max_size=20),
)
def lost_result(world: World, content: bytes) -> object:
    photos = captioned(world)
    (photos / "p01.jpg").write_bytes(content)
    (photos / "p02.jpg").unlink()
    output = world.search("photos")
    return "  4.  " in output and "so not on the sheet" in output and "exit" not in output


@tried(
    "F41",
    "a locale without UTF-8 changes no collection",
    "own",
    "ü",
    st.sampled_from(["犬", "собака", "é", "🐶"]),
)
def locale(world: World, name: str) -> object:
    world.write(f"photos/{name}.jpg", photo(1))
    world.photos("photos", 2)
    world.index("photos")
    variables = {
        **os.environ,
        **{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "PYTHONPATH": str(CHECKOUT),
    }
    command = [sys.executable, "-P", "-m", "bifocal", "index", "photos", "--run"]
    done = subprocess.run(
        [*command, str(world.shared.demo)],
        cwd=world.folder,
        env=variables,
        capture_output=True,
        check=False,
    )
    kept = sorted(world.items("photos", "item_id")) == sorted([f"{name}.jpg", *NAMES[:2]])
    return kept and b"set PYTHONUTF8=1" in done.stderr and b"Traceback" not in done.stderr


SENTENCES = {
    "de": "ein kleiner hund läuft über die grüne wiese und spielt mit dem ball",
    "fr": "un petit chien court dans le jardin et joue avec une balle rouge",
    "fi": "pieni koira juoksee vihreällä nurmikolla ja leikkii punaisella pallolla",
    "es": "un perro pequeño corre por el jardín verde y juega con una pelota roja",
}


@tried(
    "F8",
    "the text encoder decides the languages of the service",
    "own",
    "de",
    st.sampled_from(sorted(SENTENCES)),
)
def encoder_languages(world: World, language: str) -> object:
    world.photos("photos", 12)
    rows = [f"p{n:02}.jpg,{SENTENCES[language]}" for n in range(12)]
    world.write("photos/captions.csv", "\n".join(["image,caption", *rows]))
    world.index("photos")
    run = world.folder / "runs/photos-index"
    release = RunSource(run).load()
    of_demo = release.languages
    file = run / "artifacts/onnx/vocabulary.json"
    words = json.loads(file.read_text())
    known = [*words["words"][:2], *dict.fromkeys(SENTENCES[language].split())]
    words["words"] = known + words["words"][len(known) :]
    file.unlink()  # it may be a link to the demo's
    file.write_text(json.dumps(words))
    del release.languages
    release.embedder = Embedder(file.parent)
    return (of_demo, release.languages) == ([], [language])
