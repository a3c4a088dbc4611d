import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.durable import inside as module
from bifocal.durable import open_inside, path_inside
from bifocal.durable.inside import CACHES, check_own


@pytest.fixture
def root(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    folder = tmp_path / "root"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "file").write_text("file")
    (folder / "a" / "b" / "file").write_text("deep")
    (folder / "near").symlink_to("file")
    (folder / "a" / "near").symlink_to("b")
    (folder / "far").symlink_to(tmp_path / "outside" / "secret")
    (folder / "a" / "out").symlink_to("../../outside")
    (folder / "loop").symlink_to("loop")
    (folder / "up").symlink_to("..")
    return folder


PARTS = (
    "..",
    ".",
    "",
    "a",
    "b",
    "file",
    "near",
    "far",
    "out",
    "loop",
    "up",
    "root",
    "secret",
    "\0",
)


@given(
    parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=5),
    is_absolute=st.booleans(),
)
def test_only_regular_files_below_the_folder_are_opened(tmp_path_factory, parts, is_absolute):
    root_folder = root.__wrapped__(tmp_path_factory.mktemp("world"))
    name = "/".join(parts)
    name = f"{root_folder}/{name}" if is_absolute else name
    real = None if "\0" in name else Path(os.path.realpath(root_folder / name))
    accepted = (
        not name.startswith("/")
        and ".." not in parts
        and real is not None
        and real.is_file()
        and real.is_relative_to(root_folder)
    )
    try:
        with open_inside(root_folder, name) as file:
            assert file.read() == real.read_bytes() != b"secret"
            assert path_inside(root_folder, name) == real
        assert accepted
    except (ValueError, OSError):
        assert not accepted


@pytest.mark.parametrize("name", ["near", "a/near/file"])
def test_a_link_that_is_made_after_the_check_is_not_followed(root, monkeypatch, name):
    """The place is exchanged for a link between the two: the descriptors of the walk refuse it."""
    checked = path_inside(root, name)

    def exchange(folder, given, **_):
        place = folder / "file" if given == "near" else folder / "a" / "b"
        place.rename(place.with_name("moved"))
        place.symlink_to(place.with_name("moved"))
        return checked

    monkeypatch.setattr(module, "path_inside", exchange)
    with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
        open_inside(root, name)


def test_a_named_pipe_is_refused_at_once(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        open_inside(root, "pipe")


def test_no_descriptor_stays_open(root):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("file", "a/b/file", "far", "a", "loop", "none", "a/out/secret"):
        try:
            open_inside(root, name).close()
        except (OSError, ValueError):
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("cache", [*CACHES, "hub/blobs"])
def test_links_into_a_cache_of_the_same_project_are_inside(tmp_path: Path, cache: str) -> None:
    project = tmp_path / "project"
    (project / cache).mkdir(parents=True)
    (project / cache / "a1b2").write_text("image")
    root = project / ("hub/snapshots/abc" if "blobs" in cache else "data/2017")
    root.mkdir(parents=True)
    (root / "1.jpg").symlink_to(project / cache / "a1b2")
    assert path_inside(root, "1.jpg", caches=True).read_text() == "image"
    with open_inside(root, "1.jpg", caches=True) as file:
        assert file.read() == b"image"
    with pytest.raises(ValueError, match="is not a path inside"):
        path_inside(root, "1.jpg")
    for other in (tmp_path / "other", project / "private"):
        other.mkdir()
        (other / "2.jpg").write_text("secret")
        (root / "2.jpg").unlink(missing_ok=True)
        (root / "2.jpg").symlink_to(other / "2.jpg")
        with pytest.raises(ValueError, match="is not a path inside"):
            path_inside(root, "2.jpg", caches=True)
        with open_inside(root, "2.jpg", follow_links=True) as file:
            assert file.read() == b"secret"


def test_a_cache_that_is_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "project/data").mkdir(parents=True)
    (tmp_path / "project/.dvc").mkdir()
    (tmp_path / "project/.dvc/cache").symlink_to(tmp_path)
    (tmp_path / "project/data/1.jpg").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="is not a path inside"):
        path_inside(tmp_path / "project/data", "1.jpg", caches=True)


@pytest.mark.parametrize("follow_links", [False, True])
def test_links_out_are_opened_only_if_the_user_has_said_so(root, follow_links):
    (root / "file").chmod(0o600)
    (root / "a").chmod(0o711)  # searchable, not listable for others
    for name in ("far", "a/out/secret"):
        if follow_links:
            with open_inside(root, name, follow_links=True) as file:
                assert file.read() == b"secret"
        else:
            with pytest.raises(ValueError, match="not a path inside"):
                open_inside(root, name)


def test_a_hard_link_to_a_file_elsewhere_is_no_own_file(root: Path) -> None:
    check_own(root / "file")
    check_own(root)
    (root / "state").hardlink_to(root.parent / "outside" / "secret")
    with pytest.raises(ValueError, match="state is a link"):
        check_own(root / "state")
