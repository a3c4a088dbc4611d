"""A Kubernetes of two nodes on this machine, for a command such as pytest or bash.

    python -m tests.cluster.nodes.start COMMAND

A node is a network namespace with containerd, kubelet and kube-proxy. The control plane, names,
JobSet and Kubeflow's Trainer are beside them, at ``HOST``, where the command runs too and reaches
pods and services. All processes and mounts are in namespaces that end with the command, and no
setting of the kernel changes. Logs are in the folder ``nodes/log`` of the cache.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from bifocal.durable.cached import cache_folder
from tests.cluster.nodes.image import PAUSE, mounts, write_images
from tests.cluster.nodes.names import Names
from tests.cluster.nodes.programs import Programs, build, missing

HOST, PODS, SERVICES = "10.87.98.1", "10.244", "10.96.0.0/16"
SERVER = f"https://{HOST}:6443"
MARK = "BIFOCAL_NODES"
"""Environment variable of the command, with the folder of the cluster's state."""
STATE = Path("/run/nodes")
CGROUPS = Path("/sys/fs/cgroup")
SECONDS = 180.0
UNREACHABLE_SECONDS = 20
"""How long a pod tolerates a node that is cut off; Kubernetes' default is 300."""
KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Settings that the kubelet would change: it sees them as set."""


@dataclass(frozen=True)
class Node:
    """A node: its name is also the name of its network namespace."""

    name: str
    number: int

    @property
    def address(self) -> str:
        return f"10.87.98.{10 + self.number}"

    @property
    def pods(self) -> str:
        """The network of its pods."""
        return f"{PODS}.{self.number}.0/24"

    @property
    def state(self) -> Path:
        return STATE / self.name

    def cut(self) -> None:
        """Take the cable away: no packet and no reset reaches the others."""
        run("ip", "link", "set", f"to-{self.name}", "down")

    def join(self) -> None:
        run("ip", "link", "set", f"to-{self.name}", "up")

    def enter(self, *command: object) -> tuple[str, ...]:
        """Return a command that runs in the network of this node."""
        # Not 'ip netns exec', whose new /sys has no control groups.
        return ("nsenter", f"--net=/run/netns/{self.name}", *map(str, command))


NODES = (Node("nodea", 1), Node("nodeb", 2))


def run(*command: object, **options: Any) -> str:
    """Run a command; return its output."""
    call = [str(word) for word in command]
    done = subprocess.run(call, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(call)}: {done.stderr or done.stdout}")
    return done.stdout


def until(what: str, condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until the condition is true and raises nothing."""
    deadline = time.monotonic() + seconds
    while True:
        reason: object = "not yet"
        try:
            if condition():
                return
        except (RuntimeError, OSError, client.ApiException) as error:
            reason = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {seconds:g} s: {reason}")
        time.sleep(0.5)


def configuration(token: str) -> client.Configuration:
    """Return the settings of a client of the API server."""
    found = client.Configuration(SERVER, api_key={"authorization": f"Bearer {token}"})
    found.ssl_ca_cert = str(STATE / "tls.crt")
    return found


class Cluster:
    """The processes of the cluster, in the namespaces of this process."""

    def __init__(self, programs: Programs, cgroup: str) -> None:
        self.programs, self.cgroup = programs, cgroup
        self.environment = programs.environment() | {"KUBECONFIG": str(STATE / "kubeconfig")}
        self.logs = cache_folder("nodes") / "log"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start everything, until both nodes are ready and accept TrainJobs."""
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        shutil.rmtree(self.logs, ignore_errors=True)
        for folder in (STATE, self.logs):
            folder.mkdir()
        _shelter_machine()
        _connect_nodes()
        self._write_keys()
        self._start_control_plane()
        write_images(STATE / "images.tar", self.programs.kubernetes / "pause")
        for node in NODES:
            self._start_node(node)
        names = Names(configuration((STATE / "token").read_text()))
        threading.Thread(target=names.serve, args=(HOST,), daemon=True).start()
        self._start_trainer()
        until("the nodes are ready", self._ready)

    def spawn(self, name: str, *command: object, **variables: str) -> None:
        """Start a process that runs until this one ends."""
        with (self.logs / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in command],
                env=self.environment | variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kubectl(self, *arguments: object, **options: Any) -> str:
        return run("kubectl", *arguments, env=self.environment, **options)

    def _ready(self) -> bool:
        for name, process in self.processes.items():
            if process.poll() is not None:
                text = (self.logs / f"{name}.log").read_text(errors="replace")
                raise SystemExit(f"{name} has ended:\n{text[-2000:]}")
        states = self.kubectl(
            "get", "nodes", "--output",
            "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}",
        )  # fmt: skip
        return states.split() == ["True"] * len(NODES)

    def _write_keys(self) -> None:
        """Write a certificate of the servers, and the token of the only user."""
        names = f"IP:{HOST},IP:10.96.0.1,IP:127.0.0.1,DNS:kubernetes.default.svc"
        run(
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-keyout", STATE / "tls.key", "-out", STATE / "tls.crt", "-subj", "/CN=nodes",
            "-addext", f"subjectAltName={names}",
        )  # fmt: skip
        token = os.urandom(16).hex()
        (STATE / "token").write_text(token)
        (STATE / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        _write(
            STATE / "kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "nodes",
                "contexts": [{"name": "nodes", "context": {"cluster": "nodes", "user": "admin"}}],
                "users": [{"name": "admin", "user": {"token": token}}],
                "clusters": [
                    {
                        "name": "nodes",
                        "cluster": {
                            "server": SERVER,
                            "certificate-authority-data": self._authority(),
                        },
                    }
                ],
            },
        )

    def _authority(self) -> str:
        return base64.b64encode((STATE / "tls.crt").read_bytes()).decode()

    def _start_control_plane(self) -> None:
        key, certificate, user = STATE / "tls.key", STATE / "tls.crt", STATE / "kubeconfig"
        self.spawn("etcd", "etcd", "--data-dir", STATE / "etcd")
        self.spawn(
            "kube-apiserver",
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--service-cluster-ip-range={SERVICES}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={STATE / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            f"--default-unreachable-toleration-seconds={UNREACHABLE_SECONDS}",
            f"--default-not-ready-toleration-seconds={UNREACHABLE_SECONDS}",
        )
        until("the API server is ready", lambda: self.kubectl("get", "--raw", "/readyz"))
        users = [
            f"--{purpose}kubeconfig={user}" for purpose in ("", "authentication-", "authorization-")
        ]
        options = [*users, "--leader-elect=false", "--bind-address=127.0.0.1"]
        keys = [f"--service-account-private-key-file={key}", f"--root-ca-file={certificate}"]
        self.spawn("kube-controller-manager", "kube-controller-manager", *options, *keys)
        self.spawn("kube-scheduler", "kube-scheduler", *options)

    def _start_node(self, node: Node) -> None:
        for hierarchy in CGROUPS.iterdir():
            _make_cgroup(hierarchy, self.cgroup, node.name)
        (node.state / "net.d").mkdir(parents=True)
        _write(node.state / "net.d/10-nodes.conflist", _network(node))
        socket = node.state / "containerd.sock"
        specification = json.loads(run("ctr", "oci", "spec", env=self.environment))
        specification["mounts"] += mounts()
        del specification["process"]["rlimits"]
        _write(node.state / "spec.json", specification)
        (node.state / "containerd.toml").write_text(_containerd(node, self.programs))
        _write(node.state / "kubelet.yaml", _kubelet(node, self.cgroup))
        containerd = ("containerd", "--config", node.state / "containerd.toml")
        self.spawn(f"{node.name}-containerd", *node.enter(*containerd))
        ctr = ("ctr", "--address", socket, "--namespace", "k8s.io")
        until("containerd answers", lambda: run(*ctr, "version", env=self.environment))
        run(*ctr, "images", "import", STATE / "images.tar", env=self.environment)
        own = (f"--kubeconfig={STATE / 'kubeconfig'}", f"--hostname-override={node.name}")
        self.spawn(
            f"{node.name}-kubelet",
            *node.enter("kubelet", *own),
            f"--config={node.state / 'kubelet.yaml'}",
            f"--node-ip={node.address}",
            f"--root-dir={node.state / 'kubelet'}",
            f"--cert-dir={node.state / 'certificates'}",
        )
        self.spawn(
            f"{node.name}-proxy",
            *node.enter("kube-proxy", *own),
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS}.0.0/16",
            # The kernel's own limits of connections.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        )

    def _start_trainer(self) -> None:
        """Start JobSet and Trainer as processes, with their webhooks by address."""
        for file in self.programs.manifests("resource"):
            self.kubectl("apply", "--server-side", "--filename", file)
        for namespace in ("jobset-system", "kubeflow-system"):
            self.kubectl("create", "namespace", namespace)
        certificates = STATE / "k8s-webhook-server/serving-certs"
        certificates.mkdir(parents=True)
        for suffix in ("crt", "key"):
            shutil.copy(STATE / f"tls.{suffix}", certificates / f"tls.{suffix}")
        leader = {"leaderElection": {"leaderElect": False}}
        for number, (name, group, version, own) in enumerate(
            (
                ("jobset", "config.jobset.x-k8s.io", "v1alpha1", "internalCertManagement"),
                ("trainer", "config.trainer.kubeflow.org", "v1alpha1", "certManagement"),
            )
        ):
            port = 8000 + 10 * number
            configuration = {
                "apiVersion": f"{group}/{version}",
                "kind": "Configuration",
                **leader,
                own: {"enable": False},
                "webhook": {"port": port, "host": HOST},
                "metrics": {"bindAddress": f"127.0.0.1:{port + 1}"},
                "health": {"healthProbeBindAddress": f"127.0.0.1:{port + 2}"},
            }
            if name == "trainer":
                configuration["statusServer"] = {"port": port + 3}
            _write(STATE / f"{name}.yaml", configuration)
            self.spawn(name, name, "--config", STATE / f"{name}.yaml", TMPDIR=str(STATE))
            for file in self.programs.manifests(name):
                self._apply_webhooks(name, file, port)
        for file in self.programs.manifests("runtime"):
            until(
                "the Trainer accepts runtimes",
                lambda file=file: self.kubectl("apply", "--server-side", "--filename", file),
            )

    def _apply_webhooks(self, name: str, file: Path, port: int) -> None:
        documents = [entry for entry in yaml.safe_load_all(file.read_text()) if entry]
        for number, document in enumerate(documents):
            # Webhooks of pods are for placements that the product does not use.
            document["webhooks"] = [
                hook | {"clientConfig": self._by_address(hook, port)}
                for hook in document["webhooks"]
                if not any("pods" in rule["resources"] for rule in hook["rules"])
            ]
            document["metadata"] = {"name": f"{name}-{number}"}
        text = yaml.safe_dump_all(documents)
        self.kubectl("apply", "--filename", "-", input=text)

    def _by_address(self, hook: Mapping[str, Any], port: int) -> dict[str, str]:
        path = hook["clientConfig"]["service"]["path"]
        return {"url": f"https://{HOST}:{port}{path}", "caBundle": self._authority()}


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content))


def _shelter_machine() -> None:
    """Keep what the kubelet writes to ``/var`` and ``/proc/sys`` from the machine."""
    above = [STATE / "var" / name for name in ("upper", "work")]
    for folder in above:
        folder.mkdir(parents=True)
    options = f"lowerdir=/var,upperdir={above[0]},workdir={above[1]}"
    run("mount", "-t", "overlay", "-o", options, "overlay", "/var")
    for name, value in KERNEL.items():
        if (setting := Path("/proc/sys", name)).is_file():
            file = STATE / name.replace("/", ".")
            file.write_text(f"{value}\n")
            run("mount", "--bind", file, setting)


def _connect_nodes() -> None:
    """Connect the networks of the nodes by a bridge at ``HOST``, with routes to their pods."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "nodes", "type", "bridge")
    run("ip", "addr", "add", f"{HOST}/24", "dev", "nodes")
    run("ip", "link", "set", "nodes", "up")
    for node in NODES:
        run("ip", "netns", "add", node.name)
        cable = ["link", "add", f"to-{node.name}", "type", "veth"]
        run("ip", *cable, "peer", "name", "eth0", "netns", node.name)
        run("ip", "link", "set", f"to-{node.name}", "master", "nodes", "up")
        inner = ("ip", "-n", node.name)
        run(*inner, "addr", "add", f"{node.address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            run(*inner, "link", "set", interface, "up")
        run(*inner, "route", "add", "default", "via", HOST)
        for other in NODES:
            if other != node:
                run(*inner, "route", "add", other.pods, "via", other.address)
        run("ip", "route", "add", node.pods, "via", node.address)
        for setting in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
            with suppress(RuntimeError):  # a kernel without the module for bridges
                run(*node.enter("sh", "-c", f"echo 1 > /proc/sys/net/{setting}"))
    run("ip", "route", "add", SERVICES, "via", NODES[0].address)


def _make_cgroup(hierarchy: Path, parent: str, name: str) -> None:
    """Make the control group of a node; in an empty ``cpuset``, no process can run."""
    if hierarchy.name == "unified" or not hierarchy.is_dir():
        return
    for folder in (hierarchy / parent, hierarchy / parent / name):
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).is_file():
                (folder / file).write_text((folder.parent / file).read_text())


def _network(node: Node) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(node.state / "addresses"),
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True}
    return {"cniVersion": "0.4.0", "name": "nodes", "plugins": [bridge | {"ipam": addresses}]}


def _containerd(node: Node, programs: Programs) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""
version = 2
root = "{node.state}/containerd"
state = "{node.state}/containers"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "{node.state}/containerd.sock"
[{cri}]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true  # a machine may itself be a container
[{cri}.cni]
bin_dir = "{programs.debian}/usr/lib/cni"
conf_dir = "{node.state}/net.d"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{node.state}/spec.json"
[{cri}.containerd.runtimes.runc.options]
BinaryName = "{programs.debian}/usr/sbin/runc"
"""


def _kubelet(node: Node, cgroup: str) -> dict[str, Any]:
    (node.state / "resolv.conf").write_text(f"nameserver {HOST}\n")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{node.state}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}/{node.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": str(node.state / "resolv.conf"),
        "clusterDNS": [HOST],
        "clusterDomain": "cluster.local",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "podLogsDir": str(node.state / "logs"),
        "volumePluginDir": str(node.state / "plugins"),
    }


def _remove_cgroups(name: str) -> None:
    for folder in sorted(CGROUPS.glob(f"*/{name}/**/"), reverse=True):
        with suppress(FileNotFoundError):
            until(f"{folder} is empty", lambda folder=folder: folder.rmdir() is None, 20)


def main(command: list[str]) -> int:
    """Run a command beside the cluster; return its exit code."""
    if problem := missing():
        sys.exit(f"error: {problem}")
    build()  # before the namespaces, which have no network
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cgroup = f"bifocal-nodes-{os.getpid()}"
    # setpriv: the namespaces end with this process, also if it is killed.
    shelter = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid")
    inner = (sys.executable, "-m", "tests.cluster.nodes.start", "--inside", cgroup, *command)
    try:
        call = [*shelter, "--fork", "--kill-child", "--mount-proc", *inner]
        return subprocess.run(call, check=False).returncode
    finally:
        _remove_cgroups(cgroup)


def inside(cgroup: str, command: list[str]) -> int:
    """Start the cluster in the namespaces of this process, and run the command."""
    programs = build()
    cluster = Cluster(programs, cgroup)
    cluster.start()
    variables = {"KUBECONFIG": str(STATE / "kubeconfig"), MARK: str(STATE)}
    return subprocess.run(command, env=os.environ | variables, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(sys.argv[2], sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
