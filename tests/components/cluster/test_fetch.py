"""Login of a private repository: steps of a cluster read it from variables."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.cluster.fetch import run as fetch
from components.cluster.steps import FetchParams
from runtime.checkout import last_commits
from tests.git_server import PASSWORD, USER, create_repository, serve_git


@pytest.fixture
def private(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Address and commit of a repository that wants a login."""
    commit = create_repository(tmp_path / "server" / "bifocal")
    with serve_git(tmp_path / "server") as address:
        yield f"{address}/bifocal", commit


def test_files_of_a_private_repository_are_fetched_with_the_login_of_the_environment(
    private: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, commit = private
    monkeypatch.setenv("BIFOCAL_GIT_USERNAME", USER)
    monkeypatch.setenv("BIFOCAL_GIT_PASSWORD", PASSWORD)
    versions = last_commits(repository, "main", ["data.txt"])
    assert versions == {"data.txt": commit}
    params = FetchParams(seed=1, paths=["data.txt"])
    fetch(
        params, repository=repository, versions=json.dumps(versions), user_files=tmp_path / "files"
    )
    assert (tmp_path / "files" / "data.txt").read_text() == "a caption\n"


def test_a_missing_login_is_an_error_without_a_prompt(private: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"'git clone .*' failed: .*could not read Username"):
        last_commits(private[0], "main", ["data.txt"])
