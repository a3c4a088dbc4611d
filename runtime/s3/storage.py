"""Artifacts and files on S3, or on anything that speaks it: the only file that imports boto3.

The endpoint, keys and region come from the environment as for any AWS tool (``AWS_ENDPOINT_URL``, ...);
``BIFOCAL_S3_PATH_STYLE=1`` is for servers such as MinIO, which have no host name for each bucket.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from runtime import artifacts as artifact
from runtime.s3 import multipart
from runtime.spec import Component, replace_values

SCHEME = "s3://"
CACHE = Path(".cache/s3")


class StorageError(OSError):
    """S3 did not do what it was asked, after every attempt; or what it gave is not what was stored."""


@dataclass(frozen=True)
class Storage:
    """A store.

    Args:
        part_bytes: of a part of a larger file; parts travel in parallel. S3 takes none below 5 MiB.
        workers: files at once.
        attempts: of each request, with growing pauses of random length between them.
        timeout: seconds that the server may be silent.
    """

    part_bytes: int = 16 << 20
    workers: int = 4
    attempts: int = 6
    timeout: float = 60.0

    @cached_property
    def _client(self) -> Any:
        style = "path" if os.environ.get("BIFOCAL_S3_PATH_STYLE") == "1" else "auto"
        config = Config(
            s3={"addressing_style": style},
            retries={"total_max_attempts": self.attempts, "mode": "standard"},
            connect_timeout=self.timeout,
            read_timeout=self.timeout,
            max_pool_connections=4 * self.workers,
        )
        try:
            return boto3.client("s3", config=config)
        except ValueError as error:
            raise StorageError(f"{error}; expected an AWS_ENDPOINT_URL such as http://localhost:9000") from error

    @cached_property
    def _transfer(self) -> TransferConfig:
        return TransferConfig(
            multipart_threshold=self.part_bytes,
            multipart_chunksize=self.part_bytes,
            max_concurrency=4,
            # Of a body that ended too early, which is no failed request.
            num_download_attempts=self.attempts,
        )

    def upload(self, folder: Path, uri: str) -> None:
        """Store a folder at ``uri``; an artifact's manifest goes last, so that what has one is complete.

        A file that is there already with the same SHA-256 is left alone, and so is each part of a larger one: a second
        attempt sends what is missing.

        Raises:
            StorageError: the server failed too often, or refused.
        """
        files = artifact.hash_files(folder)
        last = {name: files.pop(name) for name in (artifact.MANIFEST,) if name in files}
        bucket, prefix = split(uri)
        for names in (files, last):
            self._each(
                lambda name: self._upload(folder / name, bucket, f"{prefix}/{name}", files.get(name) or last[name]),
                names,
            )

    def download(self, uri: str, target: Path) -> None:
        """Fetch the folder or file at ``uri`` to ``target``, which is whole or absent.

        What an interrupted download brought is not fetched again, nor a target that is the same already. Every file
        is compared with the SHA-256 that ``upload`` noted; one of another origin with its size.

        Raises:
            StorageError: nothing is there, the server failed too often, or a file is damaged.
        """
        bucket, prefix = split(uri)
        with _explained(uri):
            keys = self._keys(bucket, prefix)
        partial = target.with_name(target.name + ".download")
        if target.is_dir() and not partial.exists():
            target.rename(partial)
        for path in [path for path in partial.rglob("*") if path.is_file()]:
            if path.relative_to(partial).as_posix() not in keys:
                path.unlink()
        self._each(lambda name: self._download(bucket, keys[name], partial / name), keys)
        if list(keys) == [""]:
            partial.replace(target)
            return
        _check_artifact(partial, uri)
        partial.rename(target)

    def buckets(self) -> list[str]:
        """Their names, as far as the keys may see them.

        Raises:
            StorageError: the server does not answer, or takes no such keys.
        """
        with _explained("S3"):
            return [entry["Name"] for entry in self._client.list_buckets()["Buckets"]]

    def _each(self, work: Callable[[str], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(self.workers) as pool:
            for _ in pool.map(work, names):
                pass

    def _keys(self, bucket: str, prefix: str) -> dict[str, str]:
        """The key of each file by its path from ``prefix``; that is empty if ``prefix`` itself is a file."""
        found: dict[str, str] = {}
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for entry in page.get("Contents", []):
                name = entry["Key"].removeprefix(prefix)
                if name == "":
                    return {"": prefix}
                if name.startswith("/") and not name.endswith("/"):
                    found[name[1:]] = entry["Key"]
        if not found:
            raise StorageError(f"{SCHEME}{bucket}/{prefix}: nothing is there; is the address right?")
        return found

    def _upload(self, path: Path, bucket: str, key: str, digest: str) -> None:
        with _explained(f"{SCHEME}{bucket}/{key}"):
            try:
                if self._client.head_object(Bucket=bucket, Key=key)["Metadata"].get("sha256") == digest:
                    return
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                    raise
            metadata = {"sha256": digest}
            if path.stat().st_size > self.part_bytes:
                multipart.upload_parts(self._client, path, bucket, key, metadata, self.part_bytes)
                return
            with path.open("rb") as file:
                # The server compares what arrives with the checksum that travels with it.
                self._client.put_object(
                    Bucket=bucket, Key=key, Body=file, Metadata=metadata, ChecksumAlgorithm="SHA256"
                )

    def _download(self, bucket: str, key: str, path: Path) -> None:
        where = f"{SCHEME}{bucket}/{key}"
        with _explained(where):
            head = self._client.head_object(Bucket=bucket, Key=key)
            if _same(path, head):
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(bucket, key, str(path), Config=self._transfer)
        if not _same(path, head):
            path.unlink()
            raise StorageError(f"{where} came damaged: it has another size or SHA-256 than was stored; upload it again")


def split(uri: str) -> tuple[str, str]:
    """Bucket and key.

    >>> split("s3://bucket/runs/1/")
    ('bucket', 'runs/1')

    Raises:
        StorageError: it is no such address.
    """
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not bucket or not key.strip("/"):
        raise StorageError(f"{uri!r}: expected s3://bucket/key")
    return bucket, key.strip("/")


def is_remote(path: str) -> bool:
    """Whether ``path`` is on S3."""
    return path.startswith(SCHEME)


def local_folder(uri: str) -> Path:
    """Where copies of what is at ``uri`` are kept."""
    bucket, key = split(uri)
    return CACHE / bucket / key


def localized(values: Mapping[str, Any], component: Component) -> dict[str, Any]:
    """``values`` with every file of the user's that is on S3 fetched, and named by its copy."""
    section, copies = values.get(component.name, {}), {}
    for location, path in component.user_paths(section).items():
        if is_remote(path):
            copies[location] = str(local_folder(path))
            Storage().download(path, local_folder(path))
    return {**values, component.name: replace_values(section, copies)}


@contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error) as error:
        raise StorageError(
            f"{where}: {error}. What was transferred stays; the next attempt goes on. "
            "'python -m pipelines doctor' looks at endpoint and keys"
        ) from error


def _same(path: Path, head: Mapping[str, Any]) -> bool:
    if not path.is_file() or path.stat().st_size != head["ContentLength"]:
        return False
    digest: str | None = head["Metadata"].get("sha256")
    if digest is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _check_artifact(folder: Path, uri: str) -> None:
    """An artifact must be what its manifest says: a folder that is being written has an older one, or none."""
    if not (folder / artifact.MANIFEST).is_file():
        return
    expected = artifact.read_manifest(folder)["files"]
    found = artifact.hash_files(folder)
    del found[artifact.MANIFEST]
    wrong = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if wrong:
        shutil.rmtree(folder)
        raise StorageError(f"{uri}: {', '.join(wrong[:5])} differ from the manifest: it was not stored whole")
