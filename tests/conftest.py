"""Shared by all tests: one thread and a seed for each, an empty MLflow store, S3 over a real socket
with injected faults."""

import os

# The two workers share two cores. NumPy reads it when it is imported: its threads spin while they
# wait for a core, which takes ten times the CPU seconds on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))

import atexit
import gc
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import numpy as np
import pytest
import torch
from botocore.retries.standard import ExponentialBackoff
from hypothesis import HealthCheck, register_random, settings
from moto.server import ThreadedMotoServer

sys.path.insert(0, str(Path(__file__).parent))
from broken_s3 import Faults, Proxy
from mlflow_server import free_port, start_server, stop_server, wait_for_server
from warm_python.start import warm_python as start_warm_python

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from bifocal.search.trained_model import TrainedModel

# until the tests are collected: imports and items live to the end, and a collection finds nothing
gc.disable()

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

LONG = ("tests/pipelines/", "tests/bifocal/serving/", "tests/rehearsals/", "tests/examples/")
"""Folders with tests of whole pipelines and trainings, whose files take up to minutes."""
SLOW_FOLDERS = ("tests/cluster/", "tests/examples/", "tests/rehearsals/")
SLOW_FIXTURES = {"browser", "mlflow_server", "trained", "warm_python"}
"""Fixtures that start a browser or an MLflow server, or run a whole pipeline."""
MAX_CPU_SECONDS, UNIT_SECONDS = 4.0, 0.03
MANY_MODULES = 50

# The machine is shared, so limits of time would measure the neighbors.
EXAMPLES = 25
settings.register_profile(
    "bifocal",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=4 * EXAMPLES if "CI" in os.environ else EXAMPLES,
)
settings.load_profile("bifocal")


class TorchRandom:
    """PyTorch's global generator, which each example of Hypothesis starts anew, as Python's and
    NumPy's."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


register_random(TorchRandom)


def seed_by(name: str) -> None:
    """Seed the global generators by a name.

    Workers share the test files in another order each time: what a test draws must not depend on
    the tests before it.
    """
    seed = zlib.crc32(name.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the generator of libraries
    torch.manual_seed(seed)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Iterator[object]:
    """Seed what a fixture draws by its name and parameter."""
    seed_by(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]")
    return (yield)


@pytest.hookimpl(tryfirst=True)  # before the marks select tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and run the long files first, so that both workers end with short ones, at
    the same time."""
    for item in items:
        in_slow_folder = any(folder in item.path.as_posix() for folder in SLOW_FOLDERS)
        if (
            in_slow_folder
            or item.get_closest_marker("real")
            or SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        ):
            item.add_marker("slow")
    items.sort(key=lambda item: not any(folder in item.path.as_posix() for folder in LONG))
    gc.freeze()  # or else each full collection visits a million objects of imported packages
    gc.enable()
    # Some libraries print what is left at the exit. Not earlier: the end of a session collects five
    # times.
    atexit.register(gc.unfreeze)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test without the mark ``slow`` that takes more than ``MAX_CPU_SECONDS``, on a machine
    on which ``unit_of_work`` takes ``UNIT_SECONDS``."""
    seed_by(item.nodeid)
    modules, start = len(sys.modules), cpu_seconds()
    yield
    used = cpu_seconds() - start
    # The first test that needs a package pays for its import, and threads compute while they wait.
    excused = len(sys.modules) - modules > MANY_MODULES or torch.get_num_threads() > 1
    if used > MAX_CPU_SECONDS and not excused and not item.get_closest_marker("slow"):
        examples = settings.get_profile("bifocal").max_examples / EXAMPLES
        limit = MAX_CPU_SECONDS * examples * max(1.0, unit_of_work() / UNIT_SECONDS)
        if used > limit:
            pytest.fail(
                f"{used:.1f} s of CPU, at most {limit:.1f} s on this machine: give the test the "
                "mark 'slow', or make it smaller"
            )


def cpu_seconds() -> float:
    """CPU seconds of this process and of the processes that it waited for."""
    return sum(os.times()[:4])


def unit_of_work() -> float:
    """CPU seconds of a fixed computation at this moment: neighbors share caches and cores."""
    start = time.process_time()
    sorted(str(number) for number in range(300_000))
    return time.process_time() - start


@pytest.fixture(scope="session")
def empty_mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SQLite file of an MLflow store without runs; creating its tables takes seconds, a copy does
    not."""
    from mlflow import MlflowClient  # takes seconds, and most tests do not need it

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def mlflow_store(empty_mlflow_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of an empty MLflow store, which stages of this process and its children log to: a
    file, or a copy of the database of PostgreSQL at ``BIFOCAL_TEST_MLFLOW``."""
    if template := os.environ.get("BIFOCAL_TEST_MLFLOW"):
        server, _, empty = template.rpartition("/")
        name = f"test_{uuid4().hex}"
        command = f"CREATE DATABASE {name} TEMPLATE {empty}"
        subprocess.run(["psql", "--quiet", "--command", command, f"{server}/postgres"], check=True)
        address = f"{server}/{name}"
    else:
        address = f"sqlite:///{shutil.copy(empty_mlflow_store, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    # 'mlflow.set_experiment' writes it. Set before it is deleted, or else it would stay after this
    # test.
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID")
    if "mlflow.tracking.fluent" in sys.modules:
        monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    return address


@pytest.fixture(scope="session")
def mlflow_server(
    tmp_path_factory: pytest.TempPathFactory, empty_mlflow_store: Path
) -> Iterator[int]:
    """Port of a real MLflow server that one worker's tests share: each test uses its own names."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    shutil.copy(empty_mlflow_store, folder / "mlflow.db")
    process = start_server(folder, port)
    try:
        wait_for_server(port)
        yield port
    finally:
        stop_server(process)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder for ``PATH`` with a ``python`` whose commands start in half a second; the tests of one
    worker share it."""
    with start_warm_python(tmp_path_factory.mktemp("python")) as folder:
        yield folder


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Headless Chromium, which .ci/run installs; without it the tests fail there and are skipped
    here."""
    from tests.browser import chromium, required_chromium

    with chromium(required_chromium()) as opened:
        yield opened


@pytest.fixture(scope="session")
def graph_cache(pytestconfig: pytest.Config) -> Path:
    """Cache of exported graphs, for ``XDG_CACHE_HOME``, which later calls share until the code
    changes."""
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("graphs")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> "TrainedModel":
    """The model of the package with its 256 scenes."""
    from pipelines.app.demo import unpack

    return unpack(tmp_path_factory.mktemp("demo") / "run")


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of an S3 server: moto's, or the versitygw that ``BIFOCAL_TEST_S3`` names."""
    if program := os.environ.get("BIFOCAL_TEST_S3"):
        port, folder = free_port(), tmp_path_factory.mktemp("s3")
        command = [program, "--quiet", "--access=test", "--secret=test", f"--port=127.0.0.1:{port}"]
        process = subprocess.Popen([*command, "posix", str(folder)])
        end = time.monotonic() + 30
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        yield port
        process.terminate()
        process.wait()
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def bucket(moto: int) -> Iterator[None]:
    """An empty bucket, ``s3://bucket``."""
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{moto}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket="bucket")
    yield
    for entry in client.list_objects_v2(Bucket="bucket").get("Contents", []):
        client.delete_object(Bucket="bucket", Key=entry["Key"])
    for upload in client.list_multipart_uploads(Bucket="bucket").get("Uploads", []):
        names = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
        client.abort_multipart_upload(Bucket="bucket", **names)
    client.delete_bucket(Bucket="bucket")


def set_endpoint(port: int, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "BIFOCAL_S3_PATH_STYLE": "1",
        "BIFOCAL_CACHE": str(cache),
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3(bucket: None, moto: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send requests to the server itself."""
    set_endpoint(moto, tmp_path / "cache", monkeypatch)


def secure(server: ThreadingHTTPServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``server`` speak TLS with a new certificate, and send the requests to S3 to it."""
    beside = folder.with_name(f"{folder.name}-tls")  # tests list their own folder
    beside.mkdir()
    key, certificate = beside / "key.pem", beside / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))


@pytest.fixture
def https(faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send the requests of ``faults`` by TLS."""
    if os.environ["AWS_ENDPOINT_URL"].startswith("https"):
        yield
        return
    handler = type("Broken", (Proxy,), {"faults": faults})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        secure(server, tmp_path, monkeypatch)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@pytest.fixture
def faults(
    bucket: None, moto: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Faults]:
    """Send requests to a proxy that injects faults; the client retries at once. The words of
    ``BIFOCAL_TEST_S3_PROXY`` are ``https``, ``capitals`` and ``no-trailers``."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.0)
    words = os.environ.get("BIFOCAL_TEST_S3_PROXY", "").split()
    broken = Faults(moto, capitals="capitals" in words, trailers="no-trailers" not in words)
    handler = type("Broken", (Proxy,), {"faults": broken})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    set_endpoint(server.server_address[1], tmp_path / "cache", monkeypatch)
    if "https" in words:
        secure(server, tmp_path, monkeypatch)
        # Of the requests that tests send by boto3 itself.
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield broken
    broken.stalled.set()
    server.shutdown()
    server.server_close()
