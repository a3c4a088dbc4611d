"""``bifocal cache``: lists what is kept, and deletes it after a question."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bifocal.durable.cached import cache_folder
from pipelines.app import bifocal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("encoders", "s3"):
        (cache_folder(name) / "file").write_bytes(bytes(1_500_000))
    return tmp_path / "bifocal"


def test_folders_are_listed_with_sizes(home: Path) -> None:
    output = CliRunner().invoke(bifocal, ["cache"]).output
    assert f"1.5 MB  {home / 'encoders'}: the encoder small" in output
    assert f"1.5 MB  {home / 's3'}: copies of files on S3" in output
    assert output.splitlines()[-1].strip() == "3.0 MB  in all"


@pytest.mark.parametrize(
    ("options", "answer", "is_gone"), [((), "n", False), ((), "y", True), (("--yes",), "", True)]
)
def test_files_are_deleted_after_a_question(
    home: Path, options: tuple[str, ...], answer: str, is_gone: bool
) -> None:
    CliRunner().invoke(bifocal, ["cache", "--clear", *options], input=f"{answer}\n")
    assert (not any(home.iterdir())) == is_gone


def test_a_cache_of_links_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (home / "link").symlink_to(tmp_path / "mine")
    result = CliRunner().invoke(bifocal, ["cache", "--clear", "--yes"])
    assert "delete it by hand" in str(result.exception)
    assert (tmp_path / "mine" / "file").exists()
