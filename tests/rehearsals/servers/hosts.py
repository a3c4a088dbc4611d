"""Training on two hosts: network namespaces with an interface each, joined by a cable; needs root
and iproute2."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.two_processes import START, TRAIN, pair

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("ip") is None or os.geteuid() != 0, reason="no iproute2, or not root"
    ),
]
ADDRESSES, PORT, INTERFACE = ("10.87.99.1", "10.87.99.2"), "29500", "eth0"
WEIGHTS = """
import hashlib
torch.manual_seed(0)
network = torch.nn.Linear(9, 9)
data = torch.rand(40, 2, 9)
with torchrun_world() as (world, _):
    for rows in data:
        network.zero_grad()
        network(rows[rank]).square().sum().backward()
        world.average_gradients(network.parameters())
        with torch.no_grad():
            for values in network.parameters():
                values -= 0.1 * values.grad
import sys
bytes_ = b"".join(values.detach().numpy().tobytes() for values in network.parameters())
sys.stderr.write("weights " + hashlib.sha256(bytes_).hexdigest() + "\\n")
"""


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two namespaces, whose interfaces are the ends of a cable."""
    first, second = names = (f"bifocal{os.getpid()}a", f"bifocal{os.getpid()}b")
    try:
        for name in names:
            ip("netns", "add", name)
        cable = ["link", "add", INTERFACE, "netns", first, "type", "veth"]
        ip(*cable, "peer", "name", INTERFACE, "netns", second)
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                ip("-n", name, "link", "set", interface, "up")
        yield names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def start(hosts: tuple[str, str], script: str) -> list[subprocess.Popen[str]]:
    """Start a process with the script on each host."""
    environment = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "LOCAL_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "-c", START + script],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(hosts)
    ]


def test_two_hosts_give_the_bytes_of_two_processes(hosts: tuple[str, str]) -> None:
    errors = [process.communicate(timeout=120)[1] for process in start(hosts, WEIGHTS)]
    errors += [error for _, error in pair(WEIGHTS)]
    (weights,) = {error.splitlines()[-1] for error in errors}
    assert weights.startswith("weights ")


def test_a_host_without_its_cable_ends_the_other_and_is_named(hosts: tuple[str, str]) -> None:
    late = "late = lambda: (print('ready', flush=True), time.sleep(2))\n"
    first, second = start(hosts, late + TRAIN)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        ip("-n", hosts[1], "link", "set", INTERFACE, "down")
        cut = time.monotonic()
        error = first.communicate(timeout=120)[1]
        assert first.returncode == 1, error
        assert time.monotonic() - cut < 60
        assert "waiting for rank 1 since" in error
        assert "OSError: rank 1 did not answer since" in error
    finally:
        second.kill()
        second.communicate()
