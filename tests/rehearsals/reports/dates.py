"""Days and times of photographs: tags, spellings, sources."""

import os
import struct
from datetime import datetime
from typing import Any

from PIL import Image

from tests.bifocal.image_files import entry, exif_of, exif_with_dates
from tests.rehearsals.reports.photographs import CHANGED, COPIED, DIGITIZED, TAKEN, saved, with_exif
from tests.rehearsals.reports.world import World, reported


def dates(world: World, files: dict[str, bytes]) -> list[datetime | None]:
    """Index files that were copied in 2024; return their dates in the collection."""
    for name, content in files.items():
        os.utime(world.write(f"photos/{name}", content), (COPIED.timestamp(),) * 2)
    found = world.indexed("photos", "meta.date")
    return [found[name] for name in files]


def dated(world: World, *blocks: tuple[tuple[int, int, bytes], ...]) -> list[datetime | None]:
    files = {f"{n:02}.jpg": with_exif(exif_with_dates(*block), n) for n, block in enumerate(blocks)}
    return dates(world, files)


@reported(
    "D8",
    "original 0000 or blank, another date valid",
    "photoprism#2513, #305",
    [2003, 2007, 2003, 2007],
)
def blank_originals(world: World) -> Any:
    zero, blank, other = (
        b"0000:00:00 00:00:00\0",
        b"    :  :     :  :  \0",
        b"2003:05:05 14:08:45\0",
    )
    changed = b"2007:02:19 10:00:00\0"
    found = dated(
        world,
        ((TAKEN, 2, zero), (DIGITIZED, 2, other)),
        ((TAKEN, 2, zero), (CHANGED, 2, changed)),
        ((DIGITIZED, 2, other),),
        ((TAKEN, 2, blank), (CHANGED, 2, changed)),
    )
    return [date and date.year for date in found]


SPELLINGS = (
    b"2013-07-12 16:54:07",
    b"2013-07-12T16:54:07",
    b"2013/07/12 16:54:07",
    b"2013: 7:12 16:54: 7",
    b"2013:07:12 16:54:07.27-05:30",
    b"2013:07:12 16:54:07+0000",
    b"2013:7:12 16:54:7",
    b"2013.07.12 16:54:07",
)


@reported(
    "D8",
    "dates as cameras write them",
    "photoprism#304, immich#14824",
    {datetime(2013, 7, 12, 16, 54, 7)},
)
def spellings(world: World) -> Any:
    return set(dated(world, *(((TAKEN, 2, text + b"\0"),) for text in SPELLINGS)))


@reported(
    "D8", "24:00, no seconds, the day only, types undefined and byte", "photoprism#1179", {2013}
)
def odd_dates(world: World) -> Any:
    texts = (b"2013:07:12 24:00:00\0", b"2013:07:12 16:54\0", b"2013:07:12\0")
    blocks = [((TAKEN, 2, text),) for text in texts]
    blocks += [((TAKEN, kind, b"2013:07:12 16:54:27\0"),) for kind in (1, 7)]
    return {date and date.year for date in dated(world, *blocks)}


@reported(
    "D8",
    "an original in the first table; February 30",
    "photoprism#930",
    [datetime(2011, 11, 11, 11, 11, 11)] * 2,
)
def first_table(world: World) -> Any:
    text, day = b"2011:11:11 11:11:11\0", b"2015:02:30 08:09:10\0"
    outer = exif_of(entry(TAKEN, 2, 20, struct.pack(">I", 32)), tail=text)
    inner = exif_with_dates((TAKEN, 2, day), (CHANGED, 2, text))
    return dates(world, {"a.jpg": with_exif(outer), "b.jpg": with_exif(inner, 1)})


@reported("D8", "no valid date in EXIF: the time of the file", "photoprism#3431", {COPIED})
def no_dates(world: World) -> Any:
    texts = (b"0000:00:00 00:00:00\0", b"1373648067\0", b"\xff" * 20, b"2013:13:45 99:99:99\0", b"")
    return set(dated(world, *(((TAKEN, 2, text),) for text in texts)))


@reported(
    "D8", "1850, 1965, 0001 and 9999 are dates", "photoprism#164, #3229", [1850, 1965, 1, 9999]
)
def far_years(world: World) -> Any:
    found = dated(
        world, *(((TAKEN, 2, b"%04d:06:07 08:09:10\0" % year),) for year in (1850, 1965, 1, 9999))
    )
    return [date and date.year for date in found]


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
