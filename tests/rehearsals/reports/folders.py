"""Folders of files: names, links, replaced files, and the sentences of the commands on them."""

import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

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
