"""A static copy of the demo's collection, and a web server that sends only files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from bifocal.search.calibration.calibration import Calibration, Level
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import index_of_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import COLLECTION, ONNX
from bifocal.serving.service.models import RunSource, SearchModel
from bifocal.serving.site.npm import vendored_files
from bifocal.serving.site.writer import SiteReport, write_site

REMOVED, DELETED = "test-00103", "test-00013"
"""Items that the index has removed, and that a user of the service has deleted."""
PRESENCE = Level(-6.0, 12.0, 8.0, 0.4, 0.0, 0.0, 1.0, 100)
CALIBRATION = Calibration(-4.0, 10.0, 5.0, 0.5, 0.0, 0.0, 1.0, 100, PRESENCE)


def required_site_files() -> None:
    """Fetch ONNX Runtime for browsers; without npm, the test fails if .ci/run has it, and is
    skipped otherwise."""
    try:
        vendored_files()
    except FileNotFoundError as error:
        if os.environ.get("BIFOCAL_NEEDS_NPM"):
            raise
        pytest.skip(str(error))


def write_copy(run: Path, folder: Path) -> tuple[Path, SearchModel, SiteReport]:
    """Write an index with biases, a calibration and a removed item, and a static copy with it.

    Returns:
        The copy, the served model with the same index, and the report of the copy.
    """
    required_site_files()
    exact = index_of_collection(Collection.open(run / COLLECTION), None)
    bias = np.random.default_rng(0).normal(0, 0.05, len(exact)).astype(np.float32)
    removed = np.array([item_id == REMOVED for item_id in exact.ids])
    index, copy = folder / "index", folder / "pages" / "copy"
    index.mkdir()
    SearchIndex(
        exact.items, exact.vectors, bias, exact.description, None, removed, CALIBRATION
    ).write(index)
    served = RunSource(run, index=index).load()
    served.index.remove([DELETED])
    return copy, served, write_site(served, run / ONNX, copy)


@contextmanager
def serve_files(folder: Path) -> Iterator[str]:
    """Yield the address of a file server, which sends no headers for page isolation."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    """Handler without a log."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write nothing."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send a file; a page that closes on the way is not an error."""
        with suppress(ConnectionError):
            super().copyfile(source, outputfile)
