"""Storage against moto's server over a real socket, through a proxy that injects faults."""

import os
from pathlib import Path

import boto3
import pytest
from broken_s3 import Faults
from hypothesis import given
from hypothesis import strategies as st

from runtime import artifacts
from runtime.s3.storage import Storage, folder_and_file
from runtime.s3.uri import StorageError, parse_s3_uri

MIB = 1 << 20
PART = 5 * MIB
of_moto = pytest.mark.skipif(
    "BIFOCAL_TEST_S3" in os.environ, reason="other servers refuse a request of the test itself"
)


def write_artifact(folder: Path, large: int = 0) -> dict[str, bytes]:
    """Write an artifact with small files, an empty file and a file of ``large`` bytes."""
    files = {
        "table.parquet": bytes(range(256)) * 40,
        "images/ü 1.png": b"x" * 1000,
        "images/empty": b"",
        "large": bytes(i * i % 251 for i in range(1000)) * (large // 1000),
    }
    partial = artifacts.open_partial(folder, {})
    for name, data in files.items():
        (partial / name).parent.mkdir(exist_ok=True)
        (partial / name).write_bytes(data)
    artifacts.commit(partial, folder, {})
    return files


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != artifacts.MANIFEST
    }


def test_artifact_is_uploaded_in_parts_and_downloaded_unchanged(
    faults: Faults, tmp_path: Path
) -> None:
    files = write_artifact(tmp_path / "dataset", large=2 * PART + 3000)
    storage = Storage(part_bytes=PART)
    storage.upload(tmp_path / "dataset", "s3://bucket/runs/1/dataset")
    storage.download("s3://bucket/runs/1/dataset", tmp_path / "back")
    assert contents(tmp_path / "back") == files
    assert artifacts.artifact_hash(tmp_path / "back") == artifacts.artifact_hash(
        tmp_path / "dataset"
    )
    assert sum("partNumber=" in path for _, path in faults.seen) == 3
    written = [path for method, path in faults.seen if method in ("PUT", "POST")]
    assert written[-1] == "/bucket/runs/1/dataset/manifest.json"


def test_unchanged_files_are_not_transferred_again(faults: Faults, tmp_path: Path) -> None:
    write_artifact(tmp_path / "dataset")
    for _ in range(2):
        faults.seen.clear()
        Storage().upload(tmp_path / "dataset", "s3://bucket/a")
    assert {method for method, _ in faults.seen} == {"HEAD"}
    for _ in range(2):
        faults.seen.clear()
        Storage().download("s3://bucket/a", tmp_path / "back")
    assert not [path for method, path in faults.seen if method == "GET" and "list-type" not in path]
    assert contents(tmp_path / "back") == contents(tmp_path / "dataset")


@pytest.mark.parametrize("fault", ["500", "503", "close", "stall"])
def test_transient_faults_are_retried_without_data_loss(
    faults: Faults, tmp_path: Path, fault: str
) -> None:
    files = write_artifact(tmp_path / "dataset", large=PART + 1000)
    storage = Storage(part_bytes=PART, timeout=0.5)
    faults.planned = {"PUT": [fault] * 2, "POST": [fault], "HEAD": ["503"]}
    storage.upload(tmp_path / "dataset", "s3://bucket/b")
    faults.planned = {"GET": [fault] * 3, "HEAD": ["500"]}
    storage.download("s3://bucket/b", tmp_path / "back")
    assert contents(tmp_path / "back") == files


def test_attempts_are_limited_and_the_next_run_resumes(faults: Faults, tmp_path: Path) -> None:
    files = write_artifact(tmp_path / "dataset")
    storage = Storage(attempts=2, workers=1)
    faults.planned = {"PUT": [*["ok"] * 2, *["503"] * 2]}
    with pytest.raises(StorageError, match=r"s3://bucket/c/.*the next attempt resumes"):
        storage.upload(tmp_path / "dataset", "s3://bucket/c")
    sent = [path for method, path in faults.seen if method == "PUT"][:2]
    faults.seen.clear()
    storage.upload(tmp_path / "dataset", "s3://bucket/c")
    assert not set(sent) & {path for method, path in faults.seen if method == "PUT"}

    faults.planned = {"GET": [*["ok"] * 2, *["500"] * 4]}
    with pytest.raises(StorageError, match="the next attempt resumes"):
        storage.download("s3://bucket/c", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    faults.planned = {}
    faults.seen.clear()
    storage.download("s3://bucket/c", tmp_path / "back")
    fetched = [path for method, path in faults.seen if method == "GET" and "list-type" not in path]
    assert 0 < len(fetched) < len(files) + 1
    assert contents(tmp_path / "back") == files


def test_damaged_file_on_the_server_is_an_error(faults: Faults, tmp_path: Path) -> None:
    write_artifact(tmp_path / "dataset")
    storage = Storage()
    storage.upload(tmp_path / "dataset", "s3://bucket/d")
    digest = artifacts.hash_files(tmp_path / "dataset")["table.parquet"]
    client = boto3.client("s3")
    client.put_object(
        Bucket="bucket", Key="d/table.parquet", Body=b"y" * 10240, Metadata={"sha256": digest}
    )
    with pytest.raises(StorageError, match=r"d/table\.parquet is damaged"):
        storage.download("s3://bucket/d", tmp_path / "back")
    client.put_object(Bucket="bucket", Key="d/table.parquet", Body=b"y" * 10240)
    with pytest.raises(StorageError, match=r"table\.parquet differ from the manifest"):
        storage.download("s3://bucket/d", tmp_path / "back")


def test_digest_changes_with_names_and_contents_alone(s3: None) -> None:
    client = boto3.client("s3")

    def put(**files: bytes) -> str:
        for name, content in files.items():
            client.put_object(Bucket="bucket", Key=f"data/{name}", Body=content)
        return Storage().digest("s3://bucket/data")

    first = put(a=b"1", b=b"2")
    assert put(a=b"1") == first  # uploaded again
    client.put_object(
        Bucket="bucket", Key="database/a", Body=b"1"
    )  # shares the prefix, not the folder
    assert Storage().digest("s3://bucket/data") == first
    assert len({first, put(a=b"3"), put(c=b"4"), Storage().digest("s3://bucket/data/a")}) == 4
    with pytest.raises(StorageError, match="no such file or folder"):
        Storage().digest("s3://bucket/none")


def test_single_file_is_downloaded_and_unknown_address_is_an_error(
    faults: Faults, tmp_path: Path
) -> None:
    boto3.client("s3").put_object(Bucket="bucket", Key="words/w2v.bin", Body=b"vectors")
    Storage().download("s3://bucket/words/w2v.bin", tmp_path / "w2v.bin")
    assert (tmp_path / "w2v.bin").read_bytes() == b"vectors"
    with pytest.raises(StorageError, match="no such file or folder"):
        Storage().download("s3://bucket/word", tmp_path / "none")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        Storage().download("s3://bouquet/words", tmp_path / "none")


@pytest.mark.parametrize("part_bytes", [PART, 16 * MIB])
def test_names_of_headers_have_no_case(faults: Faults, tmp_path: Path, part_bytes: int) -> None:
    faults.capitals = True
    files = write_artifact(tmp_path / "dataset", large=PART + 1000)
    storage = Storage(part_bytes=part_bytes)
    for _ in range(2):
        faults.seen.clear()
        storage.upload(tmp_path / "dataset", "s3://bucket/c")
    assert {method for method, _ in faults.seen} == {"HEAD"}
    storage.download("s3://bucket/c", tmp_path / "back")
    (tmp_path / "back" / "large").write_bytes(bytes(len(files["large"])))
    storage.download("s3://bucket/c", tmp_path / "back")
    assert contents(tmp_path / "back") == files
    client = boto3.client("s3")
    metadata = client.head_object(Bucket="bucket", Key="c/table.parquet")["Metadata"]
    client.put_object(Bucket="bucket", Key="c/table.parquet", Body=b"y" * 10240, Metadata=metadata)
    with pytest.raises(StorageError, match=r"c/table\.parquet is damaged"):
        storage.download("s3://bucket/c", tmp_path / "other")
    etag, _ = storage.objects("s3://bucket/c")["table.parquet"]
    with pytest.raises(StorageError, match=r"c/table\.parquet is damaged"):
        storage.read("s3://bucket/c/table.parquet", etag)


@pytest.mark.parametrize("switch", ["when_supported", "when_required"])
def test_no_upload_needs_trailers(
    faults: Faults, https: None, tmp_path: Path, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over https, boto3 sends a checksum that it computes behind the body."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", switch)
    faults.trailers = False
    files = write_artifact(tmp_path / "dataset", large=PART + 1000)
    Storage(part_bytes=PART).upload(tmp_path / "dataset", "s3://bucket/t")
    Storage().download("s3://bucket/t", tmp_path / "back")
    Storage().check_writable("s3://bucket/t")
    assert contents(tmp_path / "back") == files


@of_moto
def test_what_the_server_stores_is_compared_with_the_upload(faults: Faults, tmp_path: Path) -> None:
    faults.planned = {"PUT": ["lengthen"] * 2}
    write_artifact(tmp_path / "dataset")
    with pytest.raises(StorageError, match="the server stored another size"):
        Storage(workers=1).upload(tmp_path / "dataset", "s3://bucket/l")
    faults.planned = {"PUT": ["lengthen"] * 2}
    with pytest.raises(StorageError, match="the server stored another size"):
        Storage().check_writable("s3://bucket/l")
    Storage().upload(tmp_path / "dataset", "s3://bucket/l")  # repairs it
    Storage().download("s3://bucket/l", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "dataset")


@pytest.mark.parametrize("style", ["path", "virtual"])
def test_the_addressing_style_of_the_user_holds(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(f"[default]\ns3 =\n  addressing_style = {style}\n")
    for name, value in {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_ENDPOINT_URL": "https://oss.corp.example",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("BIFOCAL_S3_PATH_STYLE", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    sign = Storage()._client.generate_presigned_url
    address = sign("get_object", {"Bucket": "bucket", "Key": "a"})
    host = "oss.corp.example/bucket/" if style == "path" else "bucket.oss.corp.example/"
    assert address.startswith(f"https://{host}a")


@pytest.mark.parametrize(
    "content", [b"{}", b"[1]", b"\xff\xfe", b'{"schema_version": 1}', b"null", b"{"]
)
def test_a_file_of_the_user_may_have_the_name_of_a_manifest(
    s3: None, tmp_path: Path, content: bytes
) -> None:
    boto3.client("s3").put_object(Bucket="bucket", Key="m/manifest.json", Body=content)
    Storage().download("s3://bucket/m", tmp_path / "back")
    assert (tmp_path / "back" / "manifest.json").read_bytes() == content


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=3), st.booleans())
def test_no_file_has_the_name_of_a_folder(path: list[str], first: bool) -> None:
    name = "/".join(path)
    keys = dict.fromkeys([name, f"{name}/b"] if first else [f"{name}/b", name, "x"])
    assert folder_and_file(keys) == name
    assert folder_and_file([f"{name}/a", f"{name}/b", "x"]) is None


@of_moto
@pytest.mark.parametrize("keys", [("n/f", "n/f/g"), ("n/f/g/h", "n/f"), ("f", "f/g")])
def test_an_object_with_the_name_of_a_folder_is_refused(
    s3: None, tmp_path: Path, keys: tuple[str, str]
) -> None:
    for key in keys:
        boto3.client("s3").put_object(Bucket="bucket", Key=f"k/{key}", Body=b"x")
    with pytest.raises(StorageError, match="is an object and a folder of objects"):
        Storage().download("s3://bucket/k", tmp_path / "back")


@of_moto
@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600"])
def test_names_of_255_bytes_are_downloaded_and_longer_ones_refused(
    s3: None, tmp_path: Path, letter: str
) -> None:
    longest = letter * (255 // len(letter.encode()))
    client = boto3.client("s3")
    client.put_object(Bucket="bucket", Key=f"w/{longest}", Body=b"x")
    Storage().download("s3://bucket/w", tmp_path / "back")
    assert [path.name for path in (tmp_path / "back").iterdir()] == [longest]
    client.put_object(Bucket="bucket", Key=f"w/{longest}{letter}", Body=b"x")
    with pytest.raises(StorageError, match="at most 255 bytes"):
        Storage().download("s3://bucket/w", tmp_path / "back")


@of_moto
@pytest.mark.parametrize(
    "key", ["../../../outside.txt", "/outside.txt", "a//b.txt", "..\\outside.txt", "./a.txt"]
)
def test_key_that_is_no_relative_path_is_refused(s3: None, tmp_path: Path, key: str) -> None:
    client = boto3.client("s3")
    client.put_object(Bucket="bucket", Key="data/captions.txt", Body=b"x")
    client.put_object(Bucket="bucket", Key=f"data/{key}", Body=b"x")
    with pytest.raises(StorageError, match=r"s3://bucket/data: the key .* is unsafe"):
        Storage().download("s3://bucket/data", tmp_path / "a" / "b" / "c" / "data")
    assert not list(tmp_path.rglob("*.txt"))


@pytest.mark.parametrize(
    "address", ["s3://bucket/data/../../x", "s3://../x", "s3://bucket/a//b", "s3://bucket/a\\b"]
)
def test_address_that_leads_out_of_its_bucket_is_refused(address: str) -> None:
    with pytest.raises(StorageError, match="is unsafe"):
        parse_s3_uri(address)


@pytest.mark.parametrize("address", ["s3://bucket", "s3:///key", "/a/b", "s3://bucket/"])
def test_invalid_uri_is_an_error(address: str) -> None:
    with pytest.raises(StorageError, match="expected s3://bucket/key"):
        parse_s3_uri(address)
