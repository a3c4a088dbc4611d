"""Commands on a machine without git."""

import shutil
from pathlib import Path

import pytest

from pipelines.commands.cluster import head_commit
from pipelines.kubeflow.preflight import _fetch
from runtime.checkout import last_commits


def test_commands_that_need_a_commit_ask_for_it_or_for_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("git") is None
    with pytest.raises(ValueError, match=r"git is not installed.*: name one by --revision"):
        head_commit()
    with pytest.raises(
        ValueError, match="git is not installed: install it, or add its folder to PATH"
    ):
        last_commits("https://example.org/x", "main", ["data"])
    assert "git is not installed" in str(_fetch("https://example.org/x", "main"))
