"""Folders of files: names, links, places that move, filters and sentences of the commands on
them."""

import io
import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image

from tests.bifocal.image_files import chunk
from tests.rehearsals.reports.world import World, photo, reported

ODD_NAMES = (
    "a%20b.jpg",
    "100%.jpg",
    "%2e%2e%2fx.jpg",
    "x#1.jpg",
    "what?.jpg",
    "2015-05-16 09:27:04.jpg",
    "new\nline.jpg",
    "tab\there.jpg",
    "-rf.jpg",
    "--help.jpg",
    "it's.jpg",
    'say "hi".jpg',
    "back\\slash.jpg",
    "a&b=c+d.jpg",
    "<b>bold.jpg",
    "trail .jpg",
    " lead.jpg",
    "$HOME `x`.jpg",
    "cafe\u0301.jpg",
    "caf\u00e9.jpg",
    "IMG.jpg",
    "img.JPG",
    "dots...jpg",
    "\u202egpj.exe.jpg",
    "{0}.jpg",
    "*.jpg",
    "[1].jpg",
    "~.jpg",
    "CON.jpg",
    "x" * 250 + ".jpg",
    "deep/" * 12 + "in.jpg",
    "h#sh?dir%/p.jpg",
)


def bytes_name(world: World, name: bytes, content: bytes) -> None:
    """Write a file whose name is not UTF-8."""
    path = world.path(os.fsdecode(name))
    path.write_bytes(content)


@reported(
    "D4",
    "index: a file name in Latin-1 bytes",
    "LibrePhotos#828, dupeguru#335",
    r"caf\xe9.jpg: its name is not UTF-8: rename it",
)
def latin_file(world: World) -> Any:
    world.photos("photos", 3)
    bytes_name(world, b"photos/caf\xe9.jpg", photo(5))
    output = world.index("photos")
    return output if "3 images can be searched" in output else "no index"


@reported(
    "D4",
    "index: a folder name in Latin-1 bytes",
    "ownphotos#112",
    r"\xe9t\xe9 2003: its name is not UTF-8: rename it",
)
def latin_folder(world: World) -> Any:
    world.photos("photos", 3)
    bytes_name(world, b"photos/\xe9t\xe9 2003/a.jpg", photo(5))
    output = world.index("photos")
    return output if "3 images can be searched" in output else "no index"


@reported("D4", "inspect and train: the same name", "unmanic#358", [True, True])
def latin_captioned(world: World) -> Any:
    world.photos("photos")
    world.table("photos")
    bytes_name(world, b"photos/caf\xe9.jpg", photo(50))
    output = world.bifocal("inspect", "photos")
    prepared = world.prepare("ImageFolder", world.folder / "photos")
    return ["its name is not UTF-8" in output, len(prepared["images"]) == 12]


@reported(
    "D4",
    "unseen: a root, an archive's member and a text file in Latin-1 bytes",
    "tarindexer#9",
    [True] * 3,
)
def latin_elsewhere(world: World) -> Any:
    bytes_name(world, b"r\xe9sum\xe9/a.jpg", photo(0))
    root = world.index(os.fsdecode(b"r\xe9sum\xe9"))
    world.photos("photos", 2)
    bytes_name(world, b"photos/caf\xe9.txt", b"a dog")
    beside = world.index("photos")
    archive = world.write("zip/a.zip", b"")
    import zipfile

    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a\udce9.jpg".encode("utf-8", "surrogateescape").decode("cp437"), photo(0))
        file.writestr("b.jpg", photo(1))
    inside = world.index("zip")
    return [
        "not UTF-8" in root,
        "2 images can be searched" in beside,
        "images can be searched" in inside,
    ]


@reported("D28", "terminal escapes of names are escaped", "immich#5629", [True, False])
def terminal_escapes(world: World) -> Any:
    world.photos("photos", 2)
    world.write("photos/a\x1b[31mRED\x1b]0;owned\x07.jpg", photo(5))
    world.write("photos/b\x1b[2J.jpg", "no image")
    output = world.index("photos") + world.search("photos")
    return [r"a\x1b[31mRED" in output, "\x1b" in output]


@reported("D27", "--copy-to of names of 250 bytes", "tagspaces#2447", 3)
def long_names(world: World) -> Any:
    for number, name in enumerate(("x" * 250, "é" * 124, "a")):
        world.write(f"photos/{name}.jpg", photo(number))
    world.index("photos")
    world.search("photos", "--copy-to", "copies")
    return len(list((world.folder / "copies").iterdir()))


@reported(
    "D27",
    "odd names: index, search, filter by folder",
    "pigallery2#272, photoprism#2133",
    [len(ODD_NAMES)] * 2,
)
def odd_file_names(world: World) -> Any:
    for number, name in enumerate(ODD_NAMES):
        world.write(f"photos/{name}", photo(number))
    indexed = world.indexed("photos")
    output = world.search("photos", "--json")
    answer = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return [len(indexed), len(answer["results"])]


@reported("D25", "--where '[1]', '\"x\"', '5', 'null' and text", "own", [True] * 5)
def conditions(world: World) -> Any:
    world.photos("photos", 3)
    world.index("photos")
    outputs = [
        world.search("photos", "--where", where) for where in ("[1]", '"x"', "5", "null", "{year")
    ]
    return ["--where is " in output and "Traceback" not in output for output in outputs]


@reported("D25", "unseen: conditions of a wrong form", "js-search#19", [True] * 7)
def odd_conditions(world: World) -> Any:
    world.photos("photos", 3)
    world.table("photos", "image,caption,price", "{image},{caption},{n}", count=3)
    world.index("photos")
    wrong = (
        '{"price": {"min": "a"}}',
        '{"price": {"least": 1}}',
        '{"price": [[1]]}',
        '{"price": {"min": {}}}',
        '{"nothing": 1}',
        '{"price": {"min": null}}',
        '{"price": 1e999}',
    )
    outputs = [world.search("photos", "--where", where) for where in wrong]
    return ["rror" in output and "Traceback" not in output for output in outputs]


@reported("D29", "a sentence that ends in .png", "own", "searched as a sentence")
def sentence(world: World) -> Any:
    return world.bifocal("search", "photo of example.png", "--run", world.shared.demo)


@reported(
    "D29",
    "queries: punctuation, SQL, emoji, blank, 12,000 characters",
    "joomla#46586, elm-text-search#15",
    False,
)
def queries(world: World) -> Any:
    texts = (
        "?!",
        "' OR 1=1; --",
        "🐶❄️",
        "犬",
        " ",
        "",
        "the of and",
        "a dog " * 2000,
        "\x00",
        "\udce9",
    )
    outputs = [world.bifocal("search", "--run", world.shared.demo, "--", text) for text in texts]
    return any("Traceback" in output for output in outputs)


@reported(
    "D31",
    "the collection of a disk at another mount point keeps its vectors",
    "immich#18933, #5629",
    "12 images can be searched: 0 new, 0 changed, 0 removed",
)
def moved_folder(world: World) -> Any:
    world.photos("usb0/photos")
    world.index("usb0/photos")
    (world.folder / "usb0").rename(world.folder / "usb1")
    return world.index("usb1/photos", "--folder", "runs/photos-index")


@reported(
    "D31",
    "another folder of the same name, without --folder: refused with the way out",
    "photoprism#568",
    "name another run folder with --folder",
)
def other_owner(world: World) -> Any:
    for name in ("a/photos", "b/photos"):
        world.photos(name, 3)
    world.index("a/photos")
    return world.index("b/photos")


@reported(
    "D31", "an emptied folder keeps its index", "immich#17290, jellyfin#1714", [True, "2 images"]
)
def unmounted(world: World) -> Any:
    world.photos("photos", 2)
    world.index("photos")
    for file in (world.folder / "photos").iterdir():
        file.unlink()
    refused = "has no images" in world.index("photos")
    rows = pq.read_table(
        world.folder / "runs/photos-index/artifacts/collection/items.parquet"
    ).num_rows
    return [refused, f"{rows} images"]


@reported(
    "D31",
    "a file replaced by one of the same size and time is embedded again",
    "immich#29417",
    "1 changed",
)
def replaced(world: World) -> Any:
    world.photos("photos", 3)
    world.index("photos")
    first, second = (world.folder / "photos" / name for name in ("p00.jpg", "p01.jpg"))
    state, length = first.stat(), first.stat().st_size
    first.write_bytes(
        (second.read_bytes() + bytes(length))[: max(length, second.stat().st_size)].ljust(
            length, b"\0"
        )
    )
    os.utime(first, ns=(state.st_atime_ns, state.st_mtime_ns))
    return world.index("photos")


@reported("D1", "indexes of 2023.05 and 2023.06, and of names without letters", "own", 4)
def dotted_names(world: World) -> Any:
    for name in ("2023.05", "2023.06", "写真", "!!!"):
        world.photos(name, 2)
        world.index(name)
    return len(list((world.folder / "runs").iterdir()))


@reported(
    "D4",
    "unseen: links out, to folders, to nothing, to themselves; a pipe; a socket-like device",
    "pigallery2#178",
    "2 images can be searched",
)
def links(world: World) -> Any:
    folder = world.photos("photos", 2)
    secret = world.write("private/secret.jpg", photo(7))
    for name, target in {
        "out.jpg": secret,
        "folder": secret.parent,
        "none.jpg": "nothing",
        "self.jpg": "self.jpg",
        "null.jpg": "/dev/null",
        "up": "..",
    }.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe.jpg")
    os.mkfifo(folder / "captions.csv")
    output = [""]
    thread = threading.Thread(
        target=lambda: output.__setitem__(0, world.index("photos")), daemon=True
    )
    thread.start()
    thread.join(60)
    return output[0] or "it waits for a pipe"


@reported("D4", "unseen: a COCO corpus whose file is a link out of its folder", "own", [3, True])
def linked_corpus(world: World) -> Any:
    from tests.bifocal.datasets.corpora.published import coco_files, write

    write(world.path("coco/x").parent, coco_files())
    for number in (1, 2, 3):
        world.write(f"coco/a/{number}.jpg", fitted(number))
    world.path("coco/a/4.jpg").symlink_to(world.write("private/secret.jpg", fitted(4)))
    tables = world.prepare("COCOInstances", world.folder / "coco", train="a", val=0.2, test=0.2)
    reasons = [row["reason"] for row in tables["rejected"]]
    return [
        len(tables["images"]),
        any("outside" in reason or "link" in reason for reason in reasons),
    ]


def fitted(number: int) -> bytes:
    """Return a JPEG of the size that the published corpora state."""
    file = io.BytesIO()
    Image.open(io.BytesIO(photo(number))).resize((40, 30)).save(file, "JPEG")
    return file.getvalue()


@reported(
    "D4",
    "unseen: huge headers: a PNG of 10^9 pixels, 10,000 segments, a GIF of 2,000 frames, a "
    "CSV of zeros",
    "Pillow#5218",
    [True] * 5,
)
def huge_headers(world: World) -> Any:
    world.photos("photos", 2)
    jpeg = photo(3)
    world.write(
        "photos/bomb.png",
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", b"\0\x0f\x42\x40\0\0\x03\xe8\x08\0\0\0\0"),
    )
    world.write("photos/segments.jpg", jpeg[:2] + 12_000 * b"\xff\xe5\0\2" + jpeg[2:])
    frames = [Image.new("P", (30, 30), number % 250) for number in range(2000)]
    frames[0].save(world.folder / "photos/frames.gif", save_all=True, append_images=frames[1:])
    world.write("photos/captions.csv", bytes(100_000))
    output = world.index("photos")
    names = (
        "bomb.png: ",
        "segments.jpg: too large",
        "captions.csv: not read",
        "images can be searched",
    )
    return [*(name in output for name in names), "Traceback" not in output]


@reported(
    "D31", "the folder is removed, becomes a file, or cannot be read", "Emby#1672", [True] * 3
)
def wrong_folders(world: World) -> Any:
    world.photos("photos", 2)
    world.index("photos")
    shutil.rmtree(world.folder / "photos")
    missing = world.index("photos")
    world.write("photos", "a file")
    file, device = world.index("photos"), world.index("/dev/null")
    return [
        re.search(r"rror", output) is not None and "Traceback" not in output
        for output in (missing, file, device)
    ]


@reported("D28", "a caption with HTML and formulas in the page of 'inspect'", "immich#5629", False)
def markup(world: World) -> Any:
    world.photos("photos")
    world.table("photos", row="{image},<script>alert({n})</script> &amp; {caption}")
    world.bifocal("inspect", "photos")
    return "<script>alert(" in Path(world.folder / "inspection.html").read_text()
