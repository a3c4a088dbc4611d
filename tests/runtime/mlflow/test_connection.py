"""The client of the tracking store."""

import sqlite3
from pathlib import Path

import alembic.command
import pytest
from alembic.config import Config

from runtime.mlflow.connection import connect


def test_a_database_whose_creation_was_killed_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_store: str
) -> None:
    def stop(config: Config, revision: str) -> None:
        with sqlite3.connect(str(config.get_main_option("sqlalchemy.url")).removeprefix("sqlite:///")) as database:
            database.execute("CREATE TABLE _alembic_tmp_experiments (a)")  # as a migration that is killed leaves it
        raise KeyboardInterrupt

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new/mlflow.db")
    with monkeypatch.context() as patch:
        patch.setattr(alembic.command, "upgrade", stop)
        # SIGKILL leaves the file that an error deletes.
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        with pytest.raises(KeyboardInterrupt):
            connect().search_experiments()
    assert (tmp_path / "new" / "mlflow.db.new").stat().st_size
    assert [found.name for found in connect().search_experiments()] == ["Default"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mlflow.db"]
