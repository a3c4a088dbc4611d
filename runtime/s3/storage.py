"""Upload and download of folders and files on any S3 server, with the environment variables of AWS
tools."""

import hashlib
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

from bifocal.durable import json_digest
from runtime import artifacts
from runtime.s3 import multipart
from runtime.s3.uri import SCHEME, StorageError, check_relative, parse_s3_uri, wrap_s3_errors


@dataclass(frozen=True)
class Storage:
    """S3 client that retries, resumes and verifies; ``part_bytes`` is at least 5 MiB, ``timeout``
    in seconds."""

    part_bytes: int = 16 << 20
    workers: int = 4
    attempts: int = 6
    timeout: float = 60.0

    def upload(self, folder: Path, uri: str) -> None:
        """Upload a folder, the manifest last: an artifact with one is complete. Skip files and
        parts on the server."""
        digests = artifacts.hash_files(folder)
        files = [name for name in digests if name != artifacts.MANIFEST]
        manifest = [name for name in digests if name == artifacts.MANIFEST]
        bucket, prefix = parse_s3_uri(uri)

        def send(name: str) -> None:
            self._upload(folder / name, bucket, f"{prefix}/{name}", digests[name])

        for names in (files, manifest):
            self._for_each(send, names)

    def download(self, uri: str, target: Path) -> None:
        """Download to ``target``, complete or absent; resume, keep unchanged files, verify SHA-256
        or else sizes."""
        bucket, prefix = parse_s3_uri(uri)
        found = self.objects(uri)
        keys = {name: f"{prefix}/{name}" if name else prefix for name in found}
        if both := folder_and_file(keys):
            raise StorageError(
                f"{uri}: {both!r} is an object and a folder of objects, but no file can have "
                "the name of a folder: rename the object"
            )
        partial = target.with_name(target.name + ".download")
        if target.is_dir() and not partial.exists():
            target.rename(partial)
        for path in [path for path in partial.rglob("*") if path.is_file()]:
            if path.relative_to(partial).as_posix() not in keys:
                path.unlink()
        self._for_each(lambda name: self._download(bucket, keys[name], partial / name), keys)
        if list(keys) == [""]:  # ``uri`` is a single file
            partial.replace(target)
            return
        check_manifest(partial, uri)
        partial.rename(target)

    def download_file(self, uri: str, target: Path) -> None:
        """Download the file at ``uri`` to ``target``; the caller verifies it."""
        bucket, key = parse_s3_uri(uri)
        with wrap_s3_errors(uri):
            self._client.download_file(bucket, key, str(target), Config=self._transfer)

    def objects(self, uri: str) -> dict[str, tuple[str, int]]:
        """ETag and size of each object of the folder at ``uri``, by its path; "" is the path of a
        single file. Whole entries of boto3 would take twice the memory."""
        bucket, prefix = parse_s3_uri(uri)
        objects: dict[str, tuple[str, int]] = {}
        with wrap_s3_errors(uri):
            for entry in self._list(bucket, prefix):
                name, found = entry["Key"].removeprefix(prefix), (entry["ETag"], entry["Size"])
                if name == "":
                    return {"": found}
                if name.startswith("/") and not name.endswith("/"):
                    objects[check_relative(name[1:], uri)] = found
        if not objects:
            raise StorageError(f"{uri}: no such file or folder; check the address")
        return objects

    def read(self, uri: str, etag: str) -> bytes:
        """Return the object at ``uri`` by one request; an error if it has another ``etag`` by
        now."""
        bucket, key = parse_s3_uri(uri)
        with wrap_s3_errors(uri):
            for attempt in range(1, self.attempts + 1):
                answer = self._client.get_object(Bucket=bucket, Key=key, IfMatch=etag)
                try:
                    body: bytes = answer["Body"].read()
                except (
                    HTTPClientError,
                    IncompleteReadError,
                ):  # the client repeats only the request, not its body
                    if attempt == self.attempts:
                        raise
                    continue
                break
        if stored_digest(answer) not in (None, hashlib.sha256(body).hexdigest()):
            raise StorageError(
                f"{uri} is damaged: its SHA-256 differs from the uploaded file; upload it again"
            )
        return body

    def digest(self, uri: str) -> str:
        """SHA-256 over the name, ETag and size of each object of the folder or file at ``uri``;
        none is downloaded."""
        lines = [[name, *state] for name, state in sorted(self.objects(uri).items())]
        return json_digest(lines)

    def exists(self, uri: str) -> bool:
        """Whether a file is at ``uri``."""
        bucket, key = parse_s3_uri(uri)
        with wrap_s3_errors(uri):
            return any(entry["Key"] == key for entry in self._list(bucket, key))

    def listing(self, uri: str) -> dict[str, tuple[int, datetime]]:
        """Size and time of the last change of each object below the folder ``uri``, by its path;
        there may be none."""
        bucket, prefix = parse_s3_uri(uri)
        with wrap_s3_errors(uri):
            return {
                entry["Key"][len(prefix) + 1 :]: (entry["Size"], entry["LastModified"])
                for entry in self._list(bucket, f"{prefix}/")
            }

    def delete(self, uri: str) -> None:
        """Delete the file at ``uri``, and the files below it; there may be none."""
        bucket, prefix = parse_s3_uri(uri)
        with wrap_s3_errors(uri):
            keys = [entry["Key"] for entry in self._list(bucket, prefix)]
            below = [key for key in keys if key == prefix or key.startswith(f"{prefix}/")]
            self._for_each(lambda key: self._client.delete_object(Bucket=bucket, Key=key), below)

    def buckets(self) -> list[str] | None:
        """Names of the buckets; None if the keys are valid but may not list them, as is usual."""
        with wrap_s3_errors("S3"):
            try:
                return [entry["Name"] for entry in self._client.list_buckets()["Buckets"]]
            except ClientError as error:
                if error.response["Error"]["Code"] != "AccessDenied":
                    raise
                return None

    def check_readable(self, uri: str) -> None:
        """List the folder or file at ``uri``, and open its first object."""
        bucket, prefix = parse_s3_uri(uri)
        with wrap_s3_errors(uri):
            entry = next(self._list(bucket, prefix), None)
            if entry is None:
                raise StorageError(f"{uri}: no such file or folder; check the address")
            self._client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].close()

    def check_writable(self, uri: str) -> None:
        """Upload a file below the folder ``uri``, download it and delete it, as stages do."""
        probe = f"{uri.rstrip('/')}/.bifocal-access-check/{uuid4().hex}"
        with TemporaryDirectory() as folder:
            sent = Path(folder) / "sent"
            sent.mkdir()
            (sent / "file").write_bytes(os.urandom(64))
            try:
                self.upload(sent, probe)
                self.download(probe, Path(folder) / "received")
            finally:
                self.delete(probe)

    @cached_property
    def _client(self) -> Any:
        by_path = os.environ.get("BIFOCAL_S3_PATH_STYLE") == "1"
        config = Config(
            # None: the addressing style of the user's AWS configuration holds.
            s3={"addressing_style": "path"} if by_path else None,
            retries={"total_max_attempts": self.attempts, "mode": "standard"},
            connect_timeout=self.timeout,
            read_timeout=self.timeout,
            max_pool_connections=4 * self.workers,
        )
        try:
            return boto3.client("s3", config=config)
        except ValueError as error:
            raise StorageError(
                f"{error}; expected an AWS_ENDPOINT_URL such as http://localhost:9000"
            ) from error

    @cached_property
    def _transfer(self) -> TransferConfig:
        return TransferConfig(
            multipart_threshold=self.part_bytes,
            multipart_chunksize=self.part_bytes,
            max_concurrency=4,
            # A body that ends too early is not a failed request: the client's own retries do not
            # cover it.
            num_download_attempts=self.attempts,
        )

    def _for_each(self, transfer: Callable[[str], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(self.workers) as pool:
            for _ in pool.map(transfer, names):
                pass

    def _list(self, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
        """Entry of each object whose key begins with ``prefix``."""
        for page in self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix
        ):
            yield from page.get("Contents", [])

    def _upload(self, path: Path, bucket: str, key: str, digest: str) -> None:
        with wrap_s3_errors(f"{SCHEME}{bucket}/{key}"):
            if self._is_stored(path, bucket, key, digest):
                return
            metadata = {"sha256": digest}
            # Twice: a resumed upload in parts has the metadata that it was begun with.
            for _ in range(2):
                if path.stat().st_size > self.part_bytes:
                    multipart.upload_parts(
                        self._client, path, bucket, key, metadata, self.part_bytes
                    )
                else:
                    with path.open("rb") as file:
                        # The server compares the received bytes with this header. A checksum that
                        # boto3 computes is a trailer, which many servers and proxies refuse, or
                        # store as a part of the file.
                        checksum = b64encode(bytes.fromhex(digest)).decode()
                        self._client.put_object(
                            Bucket=bucket,
                            Key=key,
                            Body=file,
                            Metadata=metadata,
                            ChecksumSHA256=checksum,
                        )
                if self._is_stored(path, bucket, key, digest):
                    return
        raise StorageError(
            f"{SCHEME}{bucket}/{key}: the server stored another size or SHA-256 than was uploaded; "
            "a proxy between may change requests"
        )

    def _is_stored(self, path: Path, bucket: str, key: str, digest: str) -> bool:
        try:
            head = self._client.head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            return False
        return bool(head["ContentLength"] == path.stat().st_size and stored_digest(head) == digest)

    def _download(self, bucket: str, key: str, path: Path) -> None:
        address = f"{SCHEME}{bucket}/{key}"
        with wrap_s3_errors(address):
            head = self._client.head_object(Bucket=bucket, Key=key)
            if matches_object(path, head):
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            # boto3 appends to the name, which may have no room for it.
            temporary = path.with_name(hashlib.sha256(key.encode()).hexdigest())
            self._client.download_file(bucket, key, str(temporary), Config=self._transfer)
            temporary.replace(path)
        if not matches_object(path, head):
            path.unlink()
            raise StorageError(
                f"{address} is damaged: its size or SHA-256 differs from the uploaded file; "
                "upload it again"
            )


def matches_object(path: Path, head: Mapping[str, Any]) -> bool:
    """Whether the file at ``path`` has the size, and the SHA-256 if it is known, of an object's
    HEAD response."""
    if not path.is_file() or path.stat().st_size != head["ContentLength"]:
        return False
    digest = stored_digest(head)
    if digest is None:  # the object was uploaded by another program
        return True
    return artifacts.hash_files(path)["."] == digest


def stored_digest(answer: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 in an object's metadata: names of headers have no case, and some servers
    and proxies capitalize them."""
    metadata = answer["Metadata"].items()
    return next((value for name, value in metadata if name.lower() == "sha256"), None)


def folder_and_file(names: Collection[str]) -> str | None:
    """Return a name that is also the folder of another one, if there is one."""
    folders = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}
    return min((folders - {"."}).intersection(names), default=None)


def check_manifest(folder: Path, uri: str) -> None:
    """Compare a downloaded artifact with its manifest, if any; another process may be writing to
    ``uri``."""
    if not (folder / artifacts.MANIFEST).is_file():
        return
    try:
        expected = artifacts.read_manifest(folder)["files"]
    except (ValueError, KeyError):  # the user's own file of this name
        return
    actual = artifacts.hash_files(folder)
    del actual[artifacts.MANIFEST]
    wrong = sorted(name for name in expected | actual if expected.get(name) != actual.get(name))
    if wrong:
        shutil.rmtree(folder)
        raise StorageError(
            f"{uri}: {', '.join(wrong[:5])} differ from the manifest: the upload is "
            "incomplete, repeat it"
        )
