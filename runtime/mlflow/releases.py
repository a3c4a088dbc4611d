"""Releases: a version with its collection, index and hubness bank, as ``releases/<hash>`` of its
run.

The tag ``release`` has the hash of ``release.json``, which hashes every file, so an alias moves
all. Deleted items of a registered model are in no answer of any of its versions, and in no later
release: their ids are files in the run of the promotion lock, each written once, so that writers
never conflict. A single id is also the name of its file.
"""

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import pyarrow.parquet as pq

from bifocal.durable import change, json_digest, write_json
from bifocal.hubness.bank import FILE as BANK
from bifocal.hubness.bank import HubnessBank
from bifocal.onnx.files import hash_of_files, model_hash, read_versioned
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import FEATURES, ITEMS, STATES
from bifocal.search.deletion import delete_from_collection, delete_from_index
from bifocal.search.index.files import DESCRIPTION as INDEX_DESCRIPTION
from bifocal.search.index.files import IndexDescription
from bifocal.search.index.index import SearchIndex
from bifocal.serving.service.live import Deletions
from runtime.artifacts import MANIFEST, change_manifest, hash_files
from runtime.mlflow.connection import connect, find_run, mlflow_errors_as_oserror
from runtime.mlflow.lock import check_lock, lock_run, promotion_lock
from runtime.mlflow.registry import (
    RELEASE_TAG,
    RegisteredVersion,
    check_downloaded,
    latest_with,
    version_tags,
)

DESCRIPTION = "release.json"
COLLECTION, INDEX, HUBNESS = "collection", "index", "hubness"
"""Folders of a release."""
SCHEMA_VERSION = 1
FOLDER = "releases"
LOCK_TIMEOUT = 3600.0
"""Seconds to wait for a promotion in progress."""
DELETIONS, KEY = "deletions", "items"
ITEM, LONGEST = "item-", 200
"""Prefix of a file with one item, whose id follows in hexadecimal digits, and the most digits."""


@dataclass(frozen=True)
class Release:
    """Contents of ``release.json``."""

    model: str  # SHA-256 of the exported model, see ``bifocal.onnx.files.model_hash``
    # SHA-256 of each file of the collection, the index with its calibration, and the hubness bank
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 over the hashes of the model and of the files."""
        return json_digest(asdict(self))

    def equals(self, other: "Release") -> bool:
        """Whether both have the same model, images, vectors, biases and probabilities; durations do
        not count."""
        return (self.model, self._contents()) == (other.model, other._contents())

    def _contents(self) -> dict[str, str]:
        ignored = {
            f"{COLLECTION}/{MANIFEST}",
            f"{COLLECTION}/{STATES}",
            f"{INDEX}/{MANIFEST}",
            f"{INDEX}/{INDEX_DESCRIPTION}",
        }
        return {name: digest for name, digest in self.files.items() if name not in ignored}

    def write(self, folder: Path) -> None:
        """Write ``release.json``."""
        write_json(folder / DESCRIPTION, {"schema_version": SCHEMA_VERSION, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> "Release":
        """Read ``release.json``."""
        hint = "run python -m pipelines release again"
        return cls(**read_versioned(folder / DESCRIPTION, "release", SCHEMA_VERSION, hint))


def describe_release(onnx: Path, collection: Path, index: Path, embedding: Path) -> Release:
    """Return the release of an exported model with the artifacts that its run made of it."""
    model, described = model_hash(onnx), IndexDescription.read(index)
    described.check_model(model, index)
    if Collection.open(collection).model.sha256 != model:
        raise ValueError(f"{collection} was embedded by another model: embed the collection again")
    bank = HubnessBank.read(embedding)
    if described.hubness != (None if bank is None else bank.reference):
        raise ValueError(
            f"the biases of {index} are of {described.hubness}, but {embedding} has the "
            f"hubness bank of {None if bank is None else bank.reference}: build the index again"
        )
    folders = {COLLECTION: collection, INDEX: index}
    files = {
        f"{part}/{name}": of
        for part, folder in folders.items()
        for name, of in hash_files(folder).items()
    }
    if bank is not None:
        files |= {f"{HUBNESS}/{BANK}": hash_files(embedding / BANK)["."]}
    return Release(model, dict(sorted(files.items())))


class RegistryDeletions(Deletions):
    """Ids of the deleted items of a registered model; other processes add to them."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model, self._read = model, set[str]()

    def refresh(self) -> None:
        """Read the deletions of other processes."""
        with mlflow_errors_as_oserror():
            run_id = lock_run(connect(), self.model)
            if run_id is None:
                return
            for entry in connect().list_artifacts(run_id, DELETIONS):
                if entry.path not in self._read:
                    name = Path(entry.path).stem
                    if name.startswith(ITEM):
                        self.include([bytes.fromhex(name.removeprefix(ITEM)).decode()])
                    else:
                        self.include(
                            mlflow.artifacts.load_dict(f"runs:/{run_id}/{entry.path}")[KEY]
                        )
                    self._read.add(entry.path)

    def add(self, item_id: str) -> None:
        """Delete an item."""
        self.add_all([item_id])

    def add_all(self, item_ids: Iterable[str]) -> None:
        """Delete items; they stay deleted after a crash."""
        wanted = sorted(set(item_ids) - set(self))
        if not wanted:
            return
        with mlflow_errors_as_oserror():
            run_id = lock_run(connect(), self.model)
            if run_id is None:
                raise ValueError(
                    f"the registry has no version of {self.model}: there is nothing to delete"
                )
            digits = wanted[0].encode().hex()
            alone = len(wanted) == 1 and len(digits) <= LONGEST
            name = ITEM + digits if alone else json_digest(wanted)
            connect().log_dict(run_id, {KEY: wanted}, f"{DELETIONS}/{name}.json")
        self.include(wanted)


def read_deletions(model: str) -> frozenset[str]:
    """Return the ids of the deleted items of a registered model."""
    deletions = RegistryDeletions(model)
    deletions.refresh()
    return frozenset(deletions)


def without_deleted(model: str, collection: Path, index: Path, folder: Path) -> tuple[Path, Path]:
    """Return collection and index without vectors of deleted items: copies below ``folder``, if
    they have any."""
    opened, deleted = Collection.open(collection), read_deletions(model)
    present = {
        item_id for item_id, gone in zip(opened.ids, opened.deleted, strict=True) if not gone
    }
    indexed = set(SearchIndex.open(index))
    if not deleted & (present | indexed):
        return collection, index
    copies = (
        shutil.copytree(collection, folder / COLLECTION),
        shutil.copytree(index, folder / INDEX),
    )
    with change(folder) as changed:
        if deleted & present:
            delete_from_collection(changed, copies[0], sorted(deleted & present))
        if deleted & indexed:
            delete_from_index(changed, copies[1], sorted(deleted & indexed))
        for copy in copies:
            change_manifest(changed, copy)
    return copies


def log_release(
    version: RegisteredVersion,
    onnx: Path,
    collection: Path,
    index: Path,
    embedding: Path,
    *,
    previous: str | None = None,
) -> bool:
    """Give a version the release of these artifacts, without the deleted items of the model, unless
    it has equal contents (``Release.equals``); return whether files were logged. ``previous`` is
    the release that was updated.

    Raises:
        OSError: the version meanwhile has another release than ``previous``.
    """
    with mlflow_errors_as_oserror(), TemporaryDirectory() as folder:
        collection, index = without_deleted(version.model, collection, index, Path(folder) / "kept")
        release = describe_release(onnx, collection, index, embedding)
        client, target = connect(), f"{FOLDER}/{release.digest}"
        if find_run(client, version.run_id) is None:
            raise version.lost("run")
        _check_model(version, release, hash_of_files(version.graph_files(Path(folder) / "model")))
        present = version_tags(version).get(RELEASE_TAG)
        if present:
            place = f"{FOLDER}/{present}/{DESCRIPTION}"
            file = version.download_file(place, Path(folder) / "present")
            if Release.read(file.parent).equals(release):
                return False
        logged = version.has_file(f"{target}/{DESCRIPTION}")
        if not logged:
            client.log_artifacts(version.run_id, str(collection), f"{target}/{COLLECTION}")
            client.log_artifacts(version.run_id, str(index), f"{target}/{INDEX}")
            if f"{HUBNESS}/{BANK}" in release.files:
                client.log_artifact(version.run_id, str(embedding / BANK), f"{target}/{HUBNESS}")
            release.write(Path(folder))
            client.log_artifact(version.run_id, str(Path(folder) / DESCRIPTION), target)
        with promotion_lock(version.model, LOCK_TIMEOUT):
            # A call of 'clean' may have deleted the files since.
            if not version.has_file(f"{target}/{DESCRIPTION}"):
                raise OSError(
                    f"the files of the release {release.digest[:12]} were deleted meanwhile: "
                    "run this again"
                )
            _replace_digest(version, present if previous is None else previous, release.digest)
        return not logged


def _replace_digest(version: RegisteredVersion, previous: str | None, digest: str) -> None:
    """Set the tag of the release, unless another process has changed it since it was
    ``previous``."""
    present = version_tags(version).get(RELEASE_TAG)
    if present not in (previous, digest):
        raise OSError(
            f"version {version.number} of {version.model} has the release {str(present)[:12]} "
            f"since, in place of {str(previous)[:12]}: another process released it; run this "
            "flow or command again"
        )
    check_lock(version.model)
    connect().set_model_version_tag(version.model, str(version.number), RELEASE_TAG, digest)


def find_version(model: str, onnx_hash: str) -> RegisteredVersion:
    """Return the latest version of a registered model that has an artifact ``onnx``."""
    with mlflow_errors_as_oserror():
        found = latest_with(connect(), model, onnx_hash)
    if found is None:
        raise ValueError(
            f"no version of {model} has this model: run python -m pipelines register first"
        )
    return RegisteredVersion(model, int(found.version), str(found.run_id))


def read_digest(version: RegisteredVersion) -> str:
    """Return the hash of a version's release."""
    digest = version_tags(version).get(RELEASE_TAG)
    if digest is None:
        version.check()
        raise FileNotFoundError(
            f"version {version.number} of {version.model} has no release: run python -m "
            "pipelines release for its run"
        )
    return digest


def download_release(
    version: RegisteredVersion, digest: str, folder: Path, *, features: bool = False
) -> tuple[Path, Path]:
    """Download a release with its model to ``folder`` and verify all hashes; return both folders,
    the graphs first. Only the next collection needs the stored ``features``."""
    root = f"{FOLDER}/{digest}"
    path = version.download_file(f"{root}/{DESCRIPTION}", folder / "release").parent
    release = Release.read(path)
    if release.digest != digest:
        raise ValueError(
            f"{DESCRIPTION} of version {version.number} has another hash than the tag {RELEASE_TAG}"
        )
    expected = {
        name: sha256
        for name, sha256 in release.files.items()
        if features or not name.startswith(f"{COLLECTION}/{FEATURES}/")
    }
    # The files of a folder are downloaded together.
    depths = {name: 2 if name.startswith(f"{COLLECTION}/") else 1 for name in expected}
    for part in sorted({"/".join(name.split("/")[:depth]) for name, depth in depths.items()}):
        with suppress(FileNotFoundError):  # reported below
            version.download_file(f"{root}/{part}", path / Path(part).parent)
    found = {name: sha256 for name, sha256 in hash_files(path).items() if name != DESCRIPTION}
    check_downloaded(found, expected, f"the release of version {version.number}")
    graphs = version.download_graphs(folder / "model")
    _check_model(version, release, model_hash(graphs))
    return graphs, path


def released_items(version: RegisteredVersion) -> frozenset[tuple[str, str]]:
    """Return id and content of the items in a version's release, without the deleted items of the
    model."""
    path, deleted = (
        f"{FOLDER}/{read_digest(version)}/{COLLECTION}/{ITEMS}",
        read_deletions(version.model),
    )
    with TemporaryDirectory() as folder:
        file = version.download_file(path, Path(folder))
        columns = pq.read_table(file, columns=["item_id", "sha256", "deleted"]).to_pydict().values()
    rows = zip(*columns, strict=True)
    return frozenset(
        (name, content) for name, content, gone in rows if not gone and name not in deleted
    )


def _check_model(version: RegisteredVersion, release: Release, model: str) -> None:
    if model != release.model:
        raise ValueError(
            f"the release belongs to another model than version {version.number} of {version.model}"
        )
