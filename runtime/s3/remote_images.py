"""A folder of images on S3 that is listed: only images that an update reads are downloaded."""

import hashlib
import shutil
import struct
from pathlib import Path
from tempfile import NamedTemporaryFile

from bifocal.datasets.formats import sidecars
from bifocal.datasets.formats.folder import TABLES, folder_of_names
from bifocal.search.collection.sources import Source, files_source, listed_source
from runtime.s3.storage import Storage

TEXTS = (*TABLES, *sidecars.SUFFIXES)
"""Suffixes of the files with captions and metadata, which are downloaded in any case."""


class S3Images:
    """Images at an address; ``folder`` keeps the downloaded ones, so that a run that is started
    again continues.

    Args:
        objects: ETag and size of each object, by its path.
    """

    def __init__(self, address: str, folder: Path, objects: dict[str, tuple[str, int]]) -> None:
        self._address, self._folder, self._objects = address, folder, objects
        self._storage = Storage()

    def state(self, image: str) -> tuple[int, ...]:
        """Return the size of an object and a hash of its ETag, in the form of the state of a
        file."""
        etag, size = self._objects[image]
        return size, *struct.unpack(">3q", hashlib.sha256(etag.encode()).digest()[:24])

    def open(self, image: str) -> Path:
        """Return the local copy of an image; download it unless the copy has the ETag of the
        listing."""
        etag, size = self._objects[image]
        copies = self._folder / image
        copy = copies / hashlib.sha256(f"{etag} {size}".encode()).hexdigest()
        if copy.is_file() and copy.stat().st_size == size:
            return copy
        body = self._storage.read(f"{self._address}/{image}", etag)
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir(parents=True)
        with NamedTemporaryFile(dir=copies, delete=False) as file:
            file.write(body)
        return Path(file.name).replace(copy)


def remote_source(address: str, copy: Path, collection: Path) -> Source:
    """Return the images at an address; all of an archive or of a single file is downloaded to
    ``copy``."""
    storage = Storage()
    objects = storage.objects(address)
    folder = folder_of_names(copy, objects)
    if not folder.images or "" in objects:
        storage.download(address, copy)
        return files_source(copy, collection, address)
    images = S3Images(address, copy.with_name(f"{copy.name}.objects"), objects)
    for name in folder.others:
        if name.lower().endswith(TEXTS):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(images.open(name), copy / name)
    return listed_source(folder, address, images)
