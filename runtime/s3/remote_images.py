"""A folder of images on S3 that is listed: only images that an update reads are downloaded."""

import shutil
import struct
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

from bifocal.datasets.formats import sidecars
from bifocal.datasets.formats.folder import TABLES, folder_of_names
from bifocal.search.collection.sources import Entry, Source, files_source, listed_source
from runtime.s3.storage import Storage

TEXTS = (*TABLES, *sidecars.SUFFIXES)
"""Suffixes of the files with captions and metadata, which are downloaded in any case."""


class S3Images:
    """Images at an address; a folder beside ``copy`` keeps the downloaded ones, so that a run that
    is started again continues."""

    def __init__(self, address: str, copy: Path) -> None:
        self._address, self._folder = address, copy.with_name(f"{copy.name}.objects")
        self._storage = Storage()

    def state(self, entry: Entry) -> tuple[int, ...]:
        """Return the size of an object and a hash of its ETag, in the form of the state of a
        file."""
        return entry.length, *struct.unpack(">3q", sha256(entry.etag.encode()).digest()[:24])

    def open(self, entry: Entry) -> Path:
        """Return the local copy of an image; download it unless the copy has the ETag of the
        listing."""
        etag, size = entry.etag, entry.length
        copies = self._folder / str(entry.image)
        copy = copies / sha256(f"{etag} {size}".encode()).hexdigest()
        if copy.is_file() and copy.stat().st_size == size:
            return copy
        body = self._storage.read(f"{self._address}/{entry.image}", etag)
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir(parents=True)
        with NamedTemporaryFile(dir=copies, delete=False) as file:
            file.write(body)
        return Path(file.name).replace(copy)


def remote_source(address: str, copy: Path, collection: Path) -> Source:
    """Return the images at an address; all of an archive or of a single file is downloaded to
    ``copy``."""
    storage = Storage()
    objects = {
        name: Entry(name, name, etag=etag, length=length)
        for name, (etag, length) in storage.objects(address).items()
    }
    folder = folder_of_names(copy, objects)
    if not folder.images or "" in objects:
        storage.download(address, copy)
        return files_source(copy, collection, address)
    images = S3Images(address, copy)
    for name in folder.others:
        if name.lower().endswith(TEXTS):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(images.open(objects[name]), copy / name)
    return listed_source(folder, address, objects, images)
