"""``docs/engines.md``: each block imports an export, and finds what the index finds."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.search.collection.collection import Collection
from bifocal.search.exports import export_collection
from bifocal.search.trained_model import COLLECTION, TrainedModel
from tests.docs.blocks import blocks
from tests.rehearsals.servers.debian import POSTGRES, postgresql

FIRST, QDRANT, PGVECTOR, LANCEDB = (
    block.text for block in blocks("docs/engines.md") if block.language == "python"
)
SERVER, DATABASE = "http://localhost:6333", "postgresql://localhost/photos"
HAS_PGVECTOR = POSTGRES is not None and any(
    Path("/usr/share/postgresql", POSTGRES.parent.name, "extension").glob("vector--0.[7-9]*.sql")
)


@pytest.fixture(scope="module")
def folder(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the run and the export of the page."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "runs").mkdir()
    (folder / "runs" / "photos").symlink_to(demo.directory)
    export_collection(Collection.open(demo.directory / COLLECTION), folder / "exported")
    return folder


def check(block: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a block in the folder, and compare the images that it finds with their cosines."""
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    exec(compile(FIRST + block, "docs/engines.md", "exec"), names)
    collection = Collection.open(folder / "runs" / "photos" / COLLECTION)
    vectors = np.asarray(collection.vectors[np.arange(len(collection))], np.float32)
    cosines = vectors @ np.array(names["query"])
    found = names["found"]
    assert isinstance(found, list)
    assert len(found) == 5
    rows = [collection.ids.index(item_id) for item_id in found]
    np.testing.assert_allclose(cosines[rows], np.sort(cosines)[:-6:-1], atol=2e-3)


def test_qdrant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SERVER in QDRANT
    check(QDRANT.replace(SERVER, ":memory:"), folder, monkeypatch)


def test_lancedb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(LANCEDB, folder, monkeypatch)


@pytest.mark.real
@pytest.mark.skipif(not HAS_PGVECTOR, reason="PostgreSQL with pgvector 0.7 is not installed")
def test_pgvector(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DATABASE in PGVECTOR
    with postgresql() as address:
        check(PGVECTOR.replace(DATABASE, address), folder, monkeypatch)
