"""Archives write nothing outside their folder, and a broken or hostile archive is an error or a
listed entry."""

import random
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets.formats.archives import unpack
from tests.bifocal.datasets.corpora.image_folder.writers import add, picture


def test_an_archive_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("../out.jpg", "/out.jpg", "C:/out.jpg", "a\\..\\..\\out.jpg", "good/0.jpg"):
            packed.writestr(name, picture(0))
        link = zipfile.ZipInfo("link.jpg")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc/passwd")
    target = tmp_path / "in" / "side"
    rejected = unpack(archive, target)
    assert [
        path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()
    ] == ["good/0.jpg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.zip", "in"]
    assert [entry.reason for entry in rejected] == ["a path outside the archive"] * 4 + ["a link"]


def test_a_tar_that_is_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    archive = tmp_path / "whole.tar"
    with tarfile.open(archive, "w") as tar:
        for number in range(4):
            add(tar, f"{number}.jpg", bytes([number]) * 700)
    whole = archive.read_bytes()
    end = 4 * (512 + 1024)
    assert unpack(archive, tmp_path / "whole") == []
    for length in (*range(512, end + 1, 512), 1000, end - 1):
        (tmp_path / "cut.tar").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.tar is damaged or not an archive"):
            unpack(tmp_path / "cut.tar", tmp_path / f"cut{length}")
    with tarfile.open(tmp_path / "cut.tgz", "w:gz") as tar:
        add(tar, "0.jpg", b"first")
    assert unpack(tmp_path / "cut.tgz", tmp_path / "gz") == []


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_changed_bits_of_a_zip_are_one_error_that_names_it(
    compression: int, tmp_path: Path
) -> None:
    archive, bits, errors = tmp_path / "changed.zip", random.Random(0), list[str]()
    with zipfile.ZipFile(archive, "w", compression) as packed:
        packed.writestr(
            "0.txt",
            " ".join(bits.choice(["a dog", "the snow", "a red car", "runs"]) for _ in range(400)),
        )
    whole = archive.read_bytes()
    for trial in range(40):
        content = bytearray(whole)
        content[bits.randrange(len(content))] ^= 1 << bits.randrange(8)
        archive.write_bytes(content)
        try:
            unpack(archive, tmp_path / str(trial))
        except ValueError as error:
            errors.append(str(error))
    assert len(errors) > 20
    assert all("changed.zip is damaged or not an archive" in error for error in errors)


def test_members_without_a_name_are_listed(tmp_path: Path) -> None:
    archive = tmp_path / "names.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in (".", "0.jpg"):
            packed.writestr(name, picture(0))
    assert [entry.reason for entry in unpack(archive, tmp_path / "out")] == ["no name"]


def test_a_tar_with_links_and_the_same_name_twice(tmp_path: Path) -> None:
    archive = tmp_path / "bad.tar"
    with tarfile.open(archive, "w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"{kind!r}.jpg")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        add(tar, "0.jpg", b"first")
        add(tar, "0.jpg", b"second")
    rejected = unpack(archive, tmp_path / "out")
    assert (tmp_path / "out" / "0.jpg").read_bytes() == b"first"
    assert [entry.reason.partition(",")[0].partition(";")[0] for entry in rejected] == [
        "no regular file"
    ] * 3 + ["a name that occurs twice"]


def test_a_zip_bomb_and_damaged_archives_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.datasets.formats.archives.SLACK", 2**16)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("0.jpg", bytes(2**23))
    with pytest.raises(
        ValueError, match=r"200 times its own size, .*: this is not an archive of photographs"
    ):
        unpack(bomb, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for name in ("cut.zip", "cut.tar"):
        (tmp_path / name).write_bytes(bomb.read_bytes()[:100])
        with pytest.raises(ValueError, match="is damaged or not an archive"):
            unpack(tmp_path / name, tmp_path / "out")


def test_a_header_without_limit_is_not_read(tmp_path: Path) -> None:
    archive = tmp_path / "header.tar"
    for kind in (
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    ):
        info = tarfile.TarInfo("0.jpg")
        info.type, info.size = kind, 3 * 2**30
        archive.write_bytes(info.tobuf(tarfile.GNU_FORMAT))
        with pytest.raises(
            ValueError, match=r"(?s)header\.tar is damaged .*a header of 3221225472 bytes"
        ):
            unpack(archive, tmp_path / "out")


def test_empty_and_skipped_files_count_towards_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bifocal.datasets.formats.archives.SLACK", 2**20)
    archive = tmp_path / "many.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for number in range(2_000):
            add(tar, f"{number}", b"")
    with pytest.raises(
        ValueError, match=r"200 times its own size, .*: this is not an archive of photographs"
    ):
        unpack(archive, tmp_path / "out")
    monkeypatch.setattr("bifocal.datasets.formats.archives.MAX_MEMBERS", 9)
    with pytest.raises(ValueError, match=r"many\.tgz unpacks to more than .* more than 9 files"):
        unpack(archive, tmp_path / "out")


def test_names_that_no_folder_can_have_are_members_faults(tmp_path: Path) -> None:
    names = ["a/" * 40 + "deep.jpg", "n" * 300 + ".jpg", "a", "a/b.jpg", "last.jpg", "\udce9.jpg"]
    with tarfile.open(tmp_path / "names.tar", "w") as tar:
        for name in names:
            add(tar, name, b"x")
    with zipfile.ZipFile(tmp_path / "names.zip", "w") as packed:
        for name in names[:-1]:
            packed.writestr(name, b"x")
    for archive in ("names.tar", "names.zip"):
        rejected = {
            entry.entry.partition(": ")[2]: entry.reason
            for entry in unpack(tmp_path / archive, tmp_path / archive[6:])
        }
        assert {path.name for path in (tmp_path / archive[6:]).iterdir()} == {"a", "last.jpg"}
        assert [rejected[name].partition(",")[0] for name in names[:2]] == [
            "in more than 31 folders"
        ] * 2
        assert rejected["a/b.jpg"].startswith("cannot be written: ")
        assert (
            rejected.get(r"\xe9.jpg", "its name is not UTF-8: rename it")
            == "its name is not UTF-8: rename it"
        )
        assert len(rejected) == len(names) - 2 - (archive == "names.zip")


def header(name: str, size: int, kind: bytes) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


def extended(text: str) -> bytes:
    content = text.encode()
    return header("x", len(content), b"x") + content.ljust(-(-len(content) // 512) * 512, b"\0")


HOSTILE = {
    "chained values": extended("11 path=abc\n") * 3000,
    "chained names": (header("././@LongLink", 5, b"L") + b"abcd\0".ljust(512, b"\0")) * 3000,
    "a length of 20 digits": extended("99999999999999999999 path=a\n"),
    "a sparse file without a map": extended(
        "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n29 GNU.sparse.realsize=999999\n"
    ),
    "a size of 20 digits": extended("30 size=99999999999999999999\n\n"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_one_error_that_names_the_archive(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.tar").write_bytes(content + header("a.jpg", 0, b"0") + bytes(1024))
    try:
        unpack(tmp_path / "a.tar", tmp_path / "in")
    except ValueError as error:
        assert str(error).startswith(f"{tmp_path / 'a.tar'} ")  # noqa: PT017
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in (
        ["a.tar"],
        ["a.tar", "a.jpg"],
    )


@given(
    blocks=st.lists(
        st.tuples(
            st.sampled_from([b"x", b"g", b"L", b"K", b"S", b"0", b"5"]), st.binary(max_size=60)
        ),
        max_size=5,
    )
)
def test_any_headers_are_members_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[tuple[bytes, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("tar")
    content = b"".join(
        header("a", len(text), kind) + text.ljust(512, b"\0") for kind, text in blocks
    )
    (folder / "a.tar").write_bytes(content + bytes(1024))
    try:
        unpack(folder / "a.tar", folder / "in")
    except ValueError as error:
        assert str(error).startswith(f"{folder / 'a.tar'} ")  # noqa: PT017
