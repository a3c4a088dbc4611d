"""The client of the tracking store."""

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import alembic.command
import mlflow
import pytest
from alembic.config import Config
from mlflow.environment_variables import MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

import runtime.mlflow
from runtime.mlflow.connection import connect, experiment_id, find_experiment


def test_a_database_whose_creation_was_killed_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_store: str
) -> None:
    def stop(config: Config, revision: str) -> None:
        with sqlite3.connect(
            str(config.get_main_option("sqlalchemy.url")).removeprefix("sqlite:///")
        ) as database:
            database.execute(
                "CREATE TABLE _alembic_tmp_experiments (a)"
            )  # as a migration that is killed leaves it
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


class ServerOfABucket(BaseHTTPRequestHandler):
    """An MLflow server that names addresses of its bucket, which nothing but the server reaches."""

    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        if self.path.endswith("/server-info"):
            answer = json.dumps(
                {"multipart_downloads_enabled": True, "multipart_uploads_enabled": True}
            )
        elif "/presigned/" in self.path:
            answer = json.dumps(
                {"url": "http://127.0.0.1:9/bucket/file.txt", "headers": {}, "file_size": 7}
            )
        else:
            answer = json.dumps({"files": []}) if "?path=" in self.path else "content"
        self._answer(answer)

    def do_PUT(self) -> None:
        type(self).asked.append(f"PUT {self.path}")
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer("{}")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def server_of_a_bucket() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (ServerOfABucket,), {"asked": asked})
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_files_of_a_server_do_not_come_from_its_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE.name, "1")
    with server_of_a_bucket() as (address, asked):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        connect()
        folder = "mlflow-artifacts:/1/2/artifacts"
        file = Path(
            mlflow.artifacts.download_artifacts(f"{folder}/file.txt", dst_path=str(tmp_path))
        )
        assert file.read_text() == "content"
        mlflow.store.artifact.artifact_repository_registry.get_artifact_repository(
            folder
        ).log_artifact(str(file))
    files = [
        path
        for path in asked
        if "/api/2.0/mlflow-artifacts/artifacts/1/2/artifacts/file.txt" in path
    ]
    assert len(files) == 2
    assert not any("/presigned/" in path or "/mpu/" in path for path in asked)


SECONDS = 2.0
"""Time that the server needs to store a file, or for any answer."""


@pytest.fixture
def slow_server() -> Iterator[str]:
    class Slow(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            time.sleep(SECONDS)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_slow_store_fails_no_upload(
    slow_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime.mlflow.connection is not None
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    file = tmp_path / "vectors.npy"
    file.write_bytes(b"vectors")
    address = f"{slow_server}/api/2.0/mlflow-artifacts/artifacts/1/run/artifacts"
    get_artifact_repository(address).log_artifact(str(file))
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"(?i)timed? ?out"):
        mlflow.MlflowClient(slow_server).get_run("a")
    monkeypatch.setenv("MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT", "1")
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"(?i)timed? ?out"):
        get_artifact_repository(address).log_artifact(str(file))


@pytest.mark.parametrize(
    "address",
    [
        "sqlite://e5.db",
        " sqlite:////tmp/none.db",
        "mysql+nodriver://user:S3cret@127.0.0.1/db",
        "postgres://user:S3cret@127.0.0.1/db",
        "postgresql://user:_[]:=?S3cret@127.0.0.1:5433/db",
    ],
)
def test_an_address_that_no_driver_reads_names_the_variable(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(OSError, match="MLFLOW_TRACKING_URI") as caught:
        connect()
    assert "S3cret" not in str(caught.value)


def test_a_deleted_experiment_names_itself_and_the_way_out(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    client.delete_experiment(experiment_id(client))
    with pytest.raises(
        OSError, match="the experiment 'bifocal' of MLflow was deleted: restore it by 'mlflow exper"
    ):
        experiment_id(client)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another")
    number = experiment_id(client)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", number)
    assert experiment_id(client) == number


@pytest.mark.parametrize("move", [shutil.move, shutil.copytree])
def test_a_moved_or_copied_checkout_has_its_files_below_itself(
    move: Callable[[Path, Path], object],
    empty_mlflow_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)
    old, new = tmp_path / "my proj", tmp_path / "my proj 2"
    old.mkdir()
    shutil.copy(empty_mlflow_store, old / "mlflow.db")
    monkeypatch.setenv("DVC_ROOT", str(old))
    client = connect()
    run = client.create_run(experiment_id(client)).info
    client.log_text(run.run_id, "evidence", "evidence/ranks.txt")
    client.create_registered_model("moved")
    client.create_model_version("moved", f"{run.artifact_uri}/evidence", run.run_id)
    move(old, new)
    monkeypatch.setenv("DVC_ROOT", str(new))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # which MLflow has set
    client = connect()
    version = client.get_model_version("moved", "1")
    assert version.source == f"{client.get_run(run.run_id).info.artifact_uri}/evidence"
    assert version.source.startswith((new / "mlruns").as_uri())
    client.log_text(client.create_run(experiment_id(client)).info.run_id, "new", "new.txt")
    assert len([path for path in new.glob("mlruns/**/*.txt")]) == 2
    assert len([path for path in old.glob("mlruns/**/*.txt")]) == (move is shutil.copytree)
    shutil.rmtree(new / "mlruns")
    monkeypatch.setenv("DVC_ROOT", str(shutil.copytree(new, tmp_path / "third")))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(
        OSError,
        match=r"third/mlflow\.db belongs to another checkout, which has its files at file:/",
    ):
        connect()


@pytest.mark.parametrize("place", ["/srv/mlruns/0", "file:///srv/mlruns/0", "mlruns/0"])
def test_a_server_with_files_in_a_folder_of_its_machine_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {"experiment_id": "0", "name": "bifocal", "artifact_location": place}
            body = json.dumps({"experiment": found | {"lifecycle_stage": "active"}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)
        with pytest.raises(OSError, match="start the server with --artifacts-destination"):
            experiment_id(connect())
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///unused.db")
        found = find_experiment(mlflow.MlflowClient(address))  # the database of this machine
        assert found is not None
        server.shutdown()
