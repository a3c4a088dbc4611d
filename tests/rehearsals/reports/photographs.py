"""Image files: metadata decide neither about pixels nor about the photograph; sizes, colors, dates
and limits."""

import io
import os
import re
import struct
import zlib
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from tests.bifocal.color_profiles import SRGB, swapped_profile
from tests.bifocal.image_files import ORIENTED, chunk, entry, exif_of, segment
from tests.rehearsals.reports.world import World, photo, reported

UPRIGHT, TURNED = (128, 96), (96, 128)
TAKEN, DIGITIZED, CHANGED = 0x9003, 0x9004, 0x0132
COPIED = datetime(2024, 3, 3, 12)


def with_exif(block: bytes, number: int = 0) -> bytes:
    """Return a JPEG with an EXIF block."""
    jpeg = photo(number)
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


@reported("D3", "a fraction in a tag of whole numbers, a negative width", "Pillow#7839", [TURNED])
def wrong_types(world: World) -> Any:
    odd = [entry(0x0201, 5, 1, struct.pack(">I", 44)), entry(0x0100, 9, 1, struct.pack(">i", -5))]
    blocks = [exif_of(ORIENTED, one, tail=struct.pack(">IIII", 1, 0, 1, 0)) for one in odd]
    return sizes(world, {f"{n}.jpg": with_exif(block, n) for n, block in enumerate(blocks)})


@reported(
    "D3",
    "two resolutions, undefined types, GPS 0/0, the header twice",
    "Pillow#3973, #4346, #8348",
    [TURNED],
)
def accepted_blocks(world: World) -> Any:
    zero = struct.pack(">6I", *[0] * 6)
    blocks = [
        exif_of(ORIENTED, entry(0x011A, 3, 2, struct.pack(">HH", 72, 72))),
        exif_of(ORIENTED, entry(0xC4A5, 3, 2, struct.pack(">HH", 1, 2))),
        exif_of(
            ORIENTED, entry(0x8825, 4, 1, struct.pack(">I", 44)), tail=struct.pack(">H", 1) + zero
        ),
        b"Exif\0\0" + exif_of(ORIENTED),
    ]
    return sizes(world, {f"{n}.jpg": with_exif(block, n) for n, block in enumerate(blocks)})


@reported("D3", "a PNG with 2 MB of text, and one with 36 MB", "Pillow#8363, #2445", [UPRIGHT])
def large_texts(world: World) -> Any:
    short, long = PngInfo(), PngInfo()
    short.add_text("workflow", "x" * 2**21, zip=True)
    for number in range(90):
        long.add_text(f"k{number}", os.urandom(200_000).hex(), zip=True)
    return sizes(
        world, {"a.png": saved("PNG", 0, pnginfo=short), "b.png": saved("PNG", 1, pnginfo=long)}
    )


@reported("D3", "a color profile of 2 MB in PNG and JPEG", "Pillow#2445, STAMP#76", [UPRIGHT])
def large_profile(world: World) -> Any:
    profile = SRGB + os.urandom(2**21)
    return sizes(
        world, {f"a.{f}": saved(f, n, icc_profile=profile) for n, f in enumerate(("PNG", "JPEG"))}
    )


@reported("D3", "the same file as a query of 'bifocal search'", "Pillow#8965", "1.0000")
def odd_query(world: World) -> Any:
    block = exif_of(
        ORIENTED, entry(0x9201, 10, 1, struct.pack(">I", 44)), tail=struct.pack(">ii", -1, 0)
    )
    world.write("photos/a.jpg", with_exif(block))
    world.index("photos")
    return world.bifocal("search", "photos/a.jpg", "--run", "runs/photos-index")


@reported(
    "D3",
    "unseen: XMP with an orientation only, HEIF-like 'eXIf' chunk of PNG",
    "immich#31617",
    [TURNED],
)
def orientation_elsewhere(world: World) -> Any:
    xmp, jpeg, png = b'<x tiff:Orientation="6"/>', photo(0), saved("PNG", 1)
    head = jpeg[:2] + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp) + jpeg[2:]
    return sizes(
        world, {"a.jpg": head, "b.png": png[:33] + chunk(b"eXIf", exif_of(ORIENTED)[6:]) + png[33:]}
    )


@reported(
    "D3",
    "unseen: EXIF of 64 kB of noise, a table that holds itself, offsets outside",
    "Pillow#8348",
    [UPRIGHT],
)
def hostile_blocks(world: World) -> Any:
    loop = exif_of(entry(0x8769, 4, 1, struct.pack(">I", 8)))
    outside = exif_of(
        entry(0x010F, 2, 64, struct.pack(">I", 2**32 - 1)), entry(0x9003, 2, 20, b"\xff" * 4)
    )
    noise = b"Exif\0\0" + np.random.default_rng(0).bytes(65_000)
    blocks = [loop, outside, noise, b"Exif\0\0", b"Exif\0\0II*\0" + b"\xff" * 4]
    return sizes(world, {f"{n}.jpg": with_exif(block, n) for n, block in enumerate(blocks)})


@reported(
    "D3",
    "unseen: PNG with 1,000 text chunks, a broken zTXt, a wrong checksum of tEXt",
    "Pillow#8363",
    [UPRIGHT],
)
def damaged_chunks(world: World) -> Any:
    chunks = [
        1000 * chunk(b"tEXt", b"k\0v"),
        chunk(b"zTXt", b"k\0\0not deflated"),
        chunk(b"tEXt", b"k\0v", crc=1),
        chunk(b"iTXt", b"\xff\xfe"),
        chunk(b"gAMA", b""),
        chunk(b"iCCP", b"p\0\0" + zlib.compress(b"no profile")),
        chunk(b"pHYs", b"\0"),
        chunk(b"tIME", b"\0\0"),
        chunk(b"cHRM", b""),
        chunk(b"sBIT", b"\1" * 9),
    ]
    pngs = [saved("PNG", number) for number in range(len(chunks))]
    return sizes(world, {f"{n}.png": png[:33] + chunks[n] + png[33:] for n, png in enumerate(pngs)})


@reported(
    "D5",
    "54 and 108 megapixels are indexed",
    "immich#4017, pannellum#596",
    [(9000, 6000), (12000, 9000)],
)
def large_photographs(world: World) -> Any:
    files = {}
    for size in ((9000, 6000), (12000, 9000)):
        file = io.BytesIO()
        picture().resize(size, Image.Resampling.NEAREST).save(file, "JPEG", quality=60)
        files[f"{size[0]}.jpg"] = file.getvalue()
    return sizes(world, files)


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
    "D5",
    "above the limit: 'too large', and the variable that raises it",
    "nextcloud#31014",
    "too large",
)
def above_the_limit(world: World) -> Any:
    world.photos("photos", 2)
    file = io.BytesIO()
    Image.new("1", (60_000, 5_000)).save(file, "PNG")
    world.write("photos/panorama.png", file.getvalue())
    output = world.index("photos")
    return output if "BIFOCAL_MAX_PIXELS raises the limit" in output else "no way out is named"


@reported("D12", "TIFF with orientations 5 to 8", "remove-ai-watermarks#106, Pillow#8390", [TURNED])
def tiff_sizes(world: World) -> Any:
    return sizes(world, {f"{n}.tif": saved("TIFF", n, tiffinfo={0x0112: n}) for n in (5, 6, 7, 8)})


@reported("D12", "JPEG, PNG, WebP and AVIF with orientation 6", "immich#31617", [TURNED])
def turned_formats(world: World) -> Any:
    formats = ("JPEG", "PNG", "WEBP", "AVIF", "TIFF")
    block = exif_of(ORIENTED)
    return sizes(
        world,
        {
            f"{f}.{f}".lower(): saved(
                f, n, **({"tiffinfo": {0x0112: 6}} if f == "TIFF" else {"exif": block})
            )
            for n, f in enumerate(formats)
        },
    )


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


@reported(
    "D19", "unseen: the same in TIFF, WebP and AVIF", "nextcloud#22951", [["swapped", "red"]] * 3
)
def profiles_of_formats(world: World) -> Any:
    found = []
    for format in ("TIFF", "WEBP", "AVIF"):
        inner = World(world.folder / format, world.shared)
        files = {
            f"swapped.{format.lower()}": plain(
                format, (20, 20, 220), icc_profile=swapped_profile()
            ),
            "red.png": plain("PNG", (220, 20, 21)),
            "blue.png": plain("PNG", (20, 20, 220)),
        }
        found.append(colors_of(inner, files))
    return found


@reported(
    "D19", "unseen: profiles of CMYK, gray and noise on RGB pixels", "photoview#1020", [UPRIGHT]
)
def wrong_profiles(world: World) -> Any:
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    found = (lab, b"noise", SRGB[:100], SRGB.replace(b"RGB ", b"CMYK"), b"\0" * 200)
    return sizes(
        world, {f"{n}.jpg": photo(n, icc_profile=profile) for n, profile in enumerate(found)}
    )


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


@reported(
    "D24",
    "a cut photograph is listed by its name, with a reason",
    "audiobookshelf#1362",
    "  cut.jpg: cannot be decoded",
)
def cut_photograph(world: World) -> Any:
    world.photos("photos", 2)
    world.write("photos/cut.jpg", photo(1)[:700])
    return world.index("photos")


@reported(
    "D22",
    "files of other types are counted, with an example",
    "immich#2719",
    "1 .jxl file was not used, such as new.jxl: save photographs as JPEG or PNG",
)
def other_types(world: World) -> Any:
    world.photos("photos", 2)
    for name in ("raw.CR2", "raw.dng", "new.jxl", "IMG_1234"):
        world.write(f"photos/{name}", b"II*\0")
    return world.index("photos")
