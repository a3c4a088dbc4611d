"""``bifocal serve``."""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bifocal.processors import PROCESSORS
from pipelines.app.run_folder import run_option

if TYPE_CHECKING:
    from fastapi import FastAPI

DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)
GRACE_SECONDS = 25
"""After SIGTERM, requests in progress have this time; the body of a request has 20 s to arrive."""
CONNECTIONS, BACKLOG = 16_384, 2048
"""Connections at a time, of about 20 KiB each, and new ones that wait."""
FEW_CONNECTIONS = 4096
HEADER_MILLISECONDS, HEADER_BYTES = 10_000, 32_768
UNREAD_MILLISECONDS = 20_000
"""A connection ends if its client takes nothing of an answer for this time."""
LOCAL = ("127.0.0.1", "localhost", "::1")


def free_address(host: str, port: int) -> tuple[str, int]:
    """Return the IP address and the port to listen on; raise ``OSError`` if another program listens
    on it."""
    family, _, _, _, place = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            tried.bind(place)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise OSError(
                f"port {port} is in use: name another one, such as --port {port + 1}"
            ) from error
        ip, free = tried.getsockname()[:2]
    return str(ip), int(free)


def raise_file_limit() -> int:
    """Let this process open as many files as the system allows, and return how many."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return sys.maxsize
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return sys.maxsize if most == resource.RLIM_INFINITY else most


@click.command()
@run_option
@click.option(
    "--model",
    metavar="URI",
    help="Registered model with its release, such as models:/bifocal@champion.",
)
@click.option(
    "--collection", type=DIRECTORY, help="Folder of the collection; by default the run's."
)
@click.option(
    "--index", type=DIRECTORY, help="Folder of the index; by default the run's, or exact search."
)
@click.option("--canary", metavar="URI", help="Release that answers a share of the clients.")
@click.option(
    "--shadow", metavar="URI", help="Release that repeats the searches of a share of the clients."
)
@click.option(
    "--share", type=click.FloatRange(0, 1), help="Share of --canary or --shadow; by default 0.1."
)
@click.option(
    "--images",
    type=DIRECTORY,
    help="Folder of the images; by default where the collection has them.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Without keys, answer everybody who reaches another --host.",
)
@click.option(
    "--allowed-host",
    "hosts",
    multiple=True,
    help="Name that clients call the service by; repeatable.",
)
@click.option(
    "--cors-origin",
    "origins",
    multiple=True,
    help="Origin whose pages may call the API; repeatable.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    help="Address of a proxy whose X-Forwarded-For names the client.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Requests at a time.",
)
@click.option(
    "--decoders",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Images decoded at a time.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Requests per second of a client; 0: any.",
)
@click.option(
    "--deletions",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that keeps the ids of deleted items. A release needs none: the registry keeps them.",
)
@click.option(
    "--corrections",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that keeps what people say about results, by the admin key: corrections.csv of a "
    "project or run.",
)
@click.option(
    "--originals/--no-originals",
    default=None,
    help="Send image files as they are, with EXIF and GPS; by default only if --host is this "
    "machine.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Default: text on a terminal, one JSON object a line elsewhere.",
)
@click.option("--open-metrics", is_flag=True, help="Answer /metrics without a key.")
@click.option("--log-queries", is_flag=True, help="Write the sentences of the requests to the log.")
@click.option(
    "--poll",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Seconds between looks for a new model.",
)
def serve_command(
    folder: Path | None,
    model: str | None,
    collection: Path | None,
    index: Path | None,
    canary: str | None,
    shadow: str | None,
    share: float | None,
    images: Path | None,
    host: str,
    port: int,
    is_open: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    proxies: tuple[str, ...],
    max_requests: int,
    decoders: int,
    rate: float,
    deletions: Path | None,
    corrections: Path | None,
    originals: bool | None,
    log_format: str | None,
    log_queries: bool,
    open_metrics: bool,
    poll: float,
) -> None:
    """Serve search, heatmaps and a page over HTTP.

    BIFOCAL_API_KEYS has the keys of clients, separated by commas; without it, no key is needed.
    BIFOCAL_ADMIN_KEY may delete items. BIFOCAL_MAX_CHARACTERS, BIFOCAL_MAX_IMAGE_BYTES and
    BIFOCAL_MAX_PIXELS limit a request.
    """
    from bifocal.onnx.limits import Limits
    from bifocal.serving.service.app import create_app
    from bifocal.serving.service.observation import (
        JSONFormatter,
        TextFormatter,
        add_traces,
        is_news,
    )
    from bifocal.serving.service.settings import Settings, read_keys
    from pipelines.app.serve_sources import (
        CheckedRun,
        ReleaseSource,
        open_candidate,
        open_deletions,
        open_source,
    )
    from runtime.redaction import redact

    source = open_source(folder, model, collection, index, images)
    candidate = open_candidate(source, canary, shadow, share)
    # Report a wrong folder or address, and a damaged file, at once.
    source.check() if isinstance(source, CheckedRun) else source.key()
    keys, admin = read_keys(os.environ)
    if admin is not None and deletions is None and not isinstance(source, ReleaseSource):
        raise click.UsageError(
            "BIFOCAL_ADMIN_KEY may delete: name the file that keeps the ids, with --deletions"
        )
    names = (*LOCAL, f"[{LOCAL[-1]}]")
    unguarded = host not in LOCAL and not keys
    if unguarded and not is_open:
        raise click.UsageError(
            f"--host {host} answers everybody who reaches it: set BIFOCAL_API_KEYS, or say so "
            "with --open"
        )
    settings = Settings(
        limits=Limits.of_process(),
        max_requests=max_requests,
        requests_per_second=rate,
        api_keys=keys,
        admin_key=admin,
        corrections=corrections,
        origins=origins,
        hosts=hosts or (names if host in LOCAL or unguarded else ("*",)),
        addresses=unguarded and not hosts,
        log_queries=log_queries,
        open_metrics=open_metrics,
        threads=PROCESSORS,
        originals=host in LOCAL if originals is None else originals,
        decoders=decoders,
    )
    ip, free_port = free_address(host, port)
    handler = logging.StreamHandler()
    as_text = sys.stderr.isatty() if log_format is None else log_format == "text"
    handler.setFormatter(TextFormatter(redact) if as_text else JSONFormatter(redact))
    if as_text:
        handler.addFilter(is_news)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    if unguarded:
        logging.getLogger(__name__).warning(
            "no keys: everybody who reaches this service may search and read items"
        )
    app = create_app(source, settings, open_deletions(source, deletions), poll, candidate)
    add_traces(app)
    run_server(app, ip, free_port, proxies)


def run_server(app: "FastAPI", ip: str, port: int, proxies: Sequence[str] = ()) -> None:
    """Run a service until a signal ends it, and print its address once it answers."""
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels
    from granian.server.embed import Server
    from granian.utils.proxies import wrap_asgi_with_proxy_headers

    class LimitedServer(Server):
        def _init_shared_socket(self) -> None:
            # Granian has no limit for answers; connections inherit this one of their socket.
            super()._init_shared_socket()  # type: ignore[no-untyped-call]
            if self._ssp is not None:
                self._shd, self._ssp = self._ssp.build(), None
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                handle: Any = self._shd
                with socket.fromfd(handle.get_fd(), socket.AF_INET, socket.SOCK_STREAM) as own:
                    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)

    async def announce() -> None:
        while True:
            with suppress(OSError):
                (await asyncio.open_connection(ip, port))[1].close()
                click.echo(f"Bifocal answers at {address(ip, port)} (stop: Ctrl-C)")
                return
            await asyncio.sleep(0.01)

    async def run() -> None:
        # The server of this process: it alone has the model, the deletions and the metrics. Above
        # the number of connections, new ones wait; each uses a file, and an answer may need another
        # one.
        connections = min(CONNECTIONS, raise_file_limit() // 2)
        if connections < FEW_CONNECTIONS:
            logging.getLogger(__name__).warning(
                "at most %d connections at a time: allow this process %d open files (ulimit -Hn)",
                connections,
                2 * FEW_CONNECTIONS,
            )
        server = LimitedServer(
            wrap_asgi_with_proxy_headers(app, list(proxies)),
            ip,
            port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEADER_BYTES
            ),
            log_level=LogLevels.error,
            log_dictconfig={"loggers": {}},
        )
        server.workers_kill_timeout = GRACE_SECONDS
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(server.stop))
        async with app.router.lifespan_context(app):
            announcing = asyncio.create_task(announce())
            with suppress(TimeoutError):  # requests that are not answered in the time of grace
                await server.serve()
            announcing.cancel()
        if not server.interrupt_signal:
            raise click.exceptions.Exit(1)  # the log has the reason

    asyncio.run(run())


def address(host: str, port: int) -> str:
    """Return an address that a browser on this machine opens.

    >>> address("0.0.0.0", 8080), address("::1", 8080)
    ('http://localhost:8080', 'http://[::1]:8080')
    """
    name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
