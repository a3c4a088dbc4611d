"""Servers of Debian's packages on loopback: PostgreSQL and nginx.

    python -m tests.rehearsals.servers.debian COMMAND

runs a command, such as pytest, with an empty store of MLflow on PostgreSQL.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mlflow_server import free_port

POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
SECONDS = 60


@contextmanager
def postgresql() -> Iterator[str]:
    """Yield the address of the database ``mlflow`` of a new server, without the scheme's driver."""
    assert POSTGRES is not None
    # The server refuses to run as root.
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    folder, port = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp")), free_port()
    if user:
        shutil.chown(folder, "postgres", "postgres")

    def call(name: str, *options: object) -> None:
        subprocess.run(
            [*user, POSTGRES / name, *map(str, options)],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    try:
        call(
            "initdb",
            "--pgdata",
            folder / "data",
            "--auth",
            "trust",
            "--username",
            "mlflow",
            "--no-sync",
        )
        settings = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} "
            "-c fsync=off"
        )
        call(
            "pg_ctl",
            "--pgdata",
            folder / "data",
            "--wait",
            "--options",
            settings,
            "--log",
            folder / "log",
            "start",
        )
        call("createdb", "--host", "127.0.0.1", "--port", port, "--username", "mlflow", "mlflow")
        yield f"postgresql://mlflow@127.0.0.1:{port}/mlflow"
    finally:
        call("pg_ctl", "--pgdata", folder / "data", "--mode", "immediate", "stop")
        shutil.rmtree(folder)


@contextmanager
def nginx(folder: Path, ports: Sequence[int]) -> Iterator[int]:
    """Yield the port of a proxy that sends a client, by its header ``bifocal-client``, to one of
    the ``ports``."""
    port = free_port()
    servers = "".join(
        f"server 127.0.0.1:{upstream} max_fails=1 fail_timeout=1s; " for upstream in ports
    )
    (folder / "nginx.conf").write_text(f"""
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 32m;
  upstream search {{ hash $http_bifocal_client consistent; {servers} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://search; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_next_upstream error timeout non_idempotent; proxy_connect_timeout 2s;
    }}
  }}
}}
""")
    process = subprocess.Popen(
        ["nginx", "-c", folder / "nginx.conf", "-p", folder], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not (folder / "nginx.pid").is_file():
            assert process.poll() is None, (folder / "nginx.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(SECONDS)


if __name__ == "__main__":
    with postgresql() as store:
        create = f"import mlflow; mlflow.MlflowClient({store!r}).search_experiments()"
        subprocess.run([sys.executable, "-c", create], check=True)
        environment = {**os.environ, "BIFOCAL_TEST_MLFLOW": store}
        sys.exit(subprocess.run(sys.argv[1:], env=environment).returncode)
