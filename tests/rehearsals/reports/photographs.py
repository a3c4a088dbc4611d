"""Image files through the commands: sizes, colors, dates and warnings; the forms of files have
tests of their own."""

import io
import os
import re
import struct
from datetime import datetime
from itertools import pairwise
from typing import Any

from PIL import Image

from tests.bifocal.color_profiles import swapped_profile
from tests.bifocal.image_files import ORIENTED, entry, exif_of, exif_with_dates, segment
from tests.rehearsals.reports.world import World, photo, reported

UPRIGHT, TURNED = (128, 96), (96, 128)
TAKEN, DIGITIZED, CHANGED = 0x9003, 0x9004, 0x0132
COPIED = datetime(2024, 3, 3, 12)


def with_exif(block: bytes) -> bytes:
    """Return a JPEG with an EXIF block."""
    jpeg = photo(0)
    return jpeg[:2] + segment(0xE1, block) + jpeg[2:]


def picture(number: int = 0) -> Image.Image:
    return Image.open(io.BytesIO(photo(number))).convert("RGB")


def saved(format: str, number: int = 0, **options: Any) -> bytes:
    """Return a photograph in a format of Pillow."""
    file = io.BytesIO()
    picture(number).save(file, format, **options)
    return file.getvalue()


def sizes(world: World, files: dict[str, bytes]) -> list[tuple[int, int]]:
    """Index files; return the different sizes in the collection, one of each file that is left
    out."""
    for name, content in files.items():
        world.write(f"photos/{name}", content)
    output = world.index("photos")
    assert "Warning" not in output, output
    assert f"{len(files)} images can be searched" in output, output
    widths, heights = (world.items("photos", column) for column in ("width", "height"))
    return sorted({(widths[name], heights[name]) for name in files})


@reported("D3", "a fraction (-1, 0) beside orientation 6", "Pillow#8965", [TURNED])
def fraction(world: World) -> Any:
    block = exif_of(
        ORIENTED, entry(0x9201, 10, 1, struct.pack(">I", 44)), tail=struct.pack(">ii", -1, 0)
    )
    return sizes(world, {"a.jpg": with_exif(block)})


@reported("D5", "'inspect' and 'index' of 54 megapixels agree", "immich#20028", "9000 x 6000")
def large_inspected(world: World) -> Any:
    world.photos("photos")
    world.table("photos")
    file = io.BytesIO()
    picture(0).resize((9000, 6000), Image.Resampling.NEAREST).save(file, "JPEG", quality=60)
    world.write("photos/p00.jpg", file.getvalue())
    output = world.bifocal("inspect", "photos")
    return output if "[exit" not in output else "an error"


@reported(
    "D12", "a phrase has the same place in all orientations of one picture", "immich#13740", True
)
def places_of_orientations(world: World) -> Any:
    seen, turns = (
        [],
        {3: 180, 6: 90, 8: 270},
    )  # degrees against the clock that the stored pixels are turned by
    for number in (1, 3, 6, 8):
        image = Image.open(world.shared.demo / "images" / "00003.jpg").rotate(
            turns.get(number, 0), expand=True
        )
        file = io.BytesIO()
        image.save(file, "PNG", exif=exif_of(entry(0x0112, 3, 1, struct.pack(">H", number))))
        path = world.write(f"{number}.png", file.getvalue())
        output = world.bifocal("where", path, "a star", "--run", world.shared.demo)
        seen.append(re.findall(r"\d+(?:\.\d+)?", output.split("->")[0]))
    return all(seen) and all(first == second for first, second in pairwise(seen))


def dates(world: World, files: dict[str, bytes]) -> list[datetime | None]:
    """Index files that were copied in 2024; return their dates in the collection."""
    for name, content in files.items():
        os.utime(world.write(f"photos/{name}", content), (COPIED.timestamp(),) * 2)
    found = world.indexed("photos", "meta.date")
    return [found[name] for name in files]


@reported(
    "D8",
    "unseen: EXIF of PNG, WebP, TIFF and AVIF",
    "photoprism#2513",
    {datetime(2003, 5, 5, 14, 8, 45)},
)
def dates_of_formats(world: World) -> Any:
    block = exif_with_dates(
        (TAKEN, 2, b"0000:00:00 00:00:00\0"), (DIGITIZED, 2, b"2003:05:05 14:08:45\0")
    )
    formats = ("PNG", "WEBP", "AVIF")
    files = {f"{f}.{f}".lower(): saved(f, n, exif=block) for n, f in enumerate(formats)}
    exif = Image.Exif()
    exif.load(block)
    return set(dates(world, files | {"a.tiff": saved("TIFF", 5, exif=exif)}))


def colors_of(world: World, files: dict[str, bytes]) -> list[bool]:
    """Index files; return whether the first one is most similar to each other, by its vectors."""
    for name, content in files.items():
        world.write(f"photos/{name}", content)
    world.index("photos")
    output = world.bifocal(
        "search", world.folder / "photos" / next(iter(files)), "--run", "runs/photos-index"
    )
    return re.findall(r"photos/(\w+)", output)[:2]


def plain(format: str, color: tuple[int, int, int], **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (200, 150), color).save(file, format, **options)
    return file.getvalue()


@reported("D19", "a profile that exchanges red and blue", "photoprism#1798", ["swapped", "red"])
def profiles(world: World) -> Any:
    files = {
        "swapped.png": plain("PNG", (20, 20, 220), icc_profile=swapped_profile()),
        "red.png": plain("PNG", (220, 20, 21)),
        "blue.png": plain("PNG", (20, 20, 220)),
    }
    return colors_of(world, files)


@reported("D24", "odd metadata print no warning of a library", "Pillow#3973, #4346", False)
def warnings_of_libraries(world: World) -> Any:
    odd = exif_of(
        ORIENTED,
        entry(0x011A, 3, 2, struct.pack(">HH", 72, 72)),
        entry(0x02BC, 1, 6, b"\0\0\0\x99"),
    )
    world.write("photos/a.jpg", with_exif(odd))
    world.write("photos/cut.jpg", photo(1)[:700])
    world.write("photos/text.jpg", "<html>404 not found</html>")
    output = world.index("photos")
    return "Warning" in output or "site-packages" in output
