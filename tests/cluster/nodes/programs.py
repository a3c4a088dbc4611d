"""Programs of a cluster: Kubernetes, JobSet and Trainer from Go's module proxy, the others from
Debian.

They are built once, in about ten minutes of two cores, and stay in the folder ``nodes`` of the
cache.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bifocal.durable.cached import cache_folder

KUBERNETES, JOBSET, TRAINER = "v1.34.2", "v0.12.0", "v2.3.0"
PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
DEBIAN = (
    *("containerd", "runc", "etcd-server", "containernetworking-plugins", "iptables"),
    *("libip4tc2", "libip6tc2", "libxtables12", "libnftnl11", "libmnl0"),
    *("libnetfilter-conntrack3", "libnfnetlink0"),
)
JOBSET_MODULE, TRAINER_MODULE = "sigs.k8s.io/jobset", "github.com/kubeflow/trainer/v2"
MANIFESTS = (
    ("resource", JOBSET_MODULE, "config/components/crd/bases/*.yaml"),
    ("resource", TRAINER_MODULE, "manifests/base/crds/trainer*.yaml"),
    ("runtime", TRAINER_MODULE, "manifests/base/runtimes/torch_distributed.yaml"),
    ("jobset", JOBSET_MODULE, "config/components/webhook/manifests.yaml"),
    ("trainer", TRAINER_MODULE, "manifests/base/webhook/manifests.yaml"),
)


@dataclass(frozen=True)
class Programs:
    """Folders of the programs."""

    kubernetes: Path  # the parts of Kubernetes, and pause
    kubeflow: Path  # JobSet, Trainer, and their manifests
    debian: Path

    def environment(self) -> dict[str, str]:
        """Return the environment in which the programs find each other."""
        libraries = self.debian / "usr/lib" / f"{os.uname().machine}-linux-gnu"
        folders = [self.kubernetes, self.kubeflow]
        folders += [self.debian / "usr" / name for name in ("bin", "sbin")]
        return {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
            "LD_LIBRARY_PATH": str(libraries),
            "XTABLES_LIBDIR": str(libraries / "xtables"),
        }

    def manifests(self, kind: str) -> list[Path]:
        """Return the files of a kind of ``MANIFESTS``."""
        return sorted(self.kubeflow.glob(f"{kind}-*.yaml"))


def missing() -> str:
    """Return why this machine cannot run the cluster, "" if it can."""
    if os.geteuid() != 0:
        return "two nodes need root"
    for tool, package in (
        *(("go", "golang"), ("apt-get", "apt, of Debian"), ("kubectl", "kubernetes-client")),
        *(("ip", "iproute2"), ("nsenter", "util-linux"), ("openssl", "openssl")),
    ):
        if shutil.which(tool) is None:
            return f"two nodes need {tool}, of the package {package}"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "two nodes need control groups of version 1"
    return ""


def build() -> Programs:
    """Return the programs; build those that are not in the cache."""
    folder = cache_folder("nodes")
    found = Programs(
        folder / f"kubernetes-{KUBERNETES}",
        folder / f"kubeflow-{JOBSET}-{TRAINER}",
        folder / "debian",
    )
    for path, write in (
        (found.debian, _unpack_debian),
        (found.kubernetes, _build_kubernetes),
        (found.kubeflow, _build_kubeflow),
    ):
        if not path.is_dir():
            partial = path.with_name(f"{path.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            write(partial)
            partial.rename(path)
    return found


def _unpack_debian(folder: Path) -> None:
    """Unpack Debian's packages without installing them."""
    archives = folder / "archives"
    archives.mkdir()
    archives.chmod(0o777)  # apt downloads as another user
    subprocess.run(["apt-get", "--quiet", "download", *DEBIAN], cwd=archives, check=True)
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg", "--extract", archive, folder], check=True)
    shutil.rmtree(archives)
    for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save"):
        link = folder / "usr/sbin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("xtables-nft-multi")


def _build_kubernetes(folder: Path) -> None:
    source = _download("k8s.io/kubernetes", KUBERNETES)
    staged = KUBERNETES.replace("v1.", "v0.")
    text = Path(source["GoMod"]).read_text()
    text = re.sub(r"^module .*", "module nodes", text, flags=re.MULTILINE)
    text = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {staged}", text)
    work = folder / "work"
    work.mkdir()
    (work / "go.mod").write_text(f"{text}\nrequire k8s.io/kubernetes {KUBERNETES}\n")
    shutil.copy(Path(__file__).with_name("hyperkube.go"), work / "main.go")
    version = "k8s.io/component-base/version.git"
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    stamps = {"Version": KUBERNETES, "Major": major, "Minor": minor, "TreeState": "clean"}
    flags = " ".join(f"-X {version}{name}={value}" for name, value in stamps.items())
    shutil.copy(Path(__file__).with_name("pause.go"), folder)
    _compile(work, {"hyperkube": ".", "pause": str(folder / "pause.go")}, folder, flags)
    for part in PARTS:
        (folder / part).symlink_to("hyperkube")


def _build_kubeflow(folder: Path) -> None:
    """Build JobSet and Trainer in one module, whose common packages are compiled once."""
    versions = {JOBSET_MODULE: JOBSET, TRAINER_MODULE: TRAINER}
    sources = {module: _download(module, version) for module, version in versions.items()}
    work = folder / "work"
    work.mkdir()
    lines = [f"require {module} {version}" for module, version in versions.items()]
    (go,) = re.findall(r"^go .*", Path(sources[TRAINER_MODULE]["GoMod"]).read_text(), re.MULTILINE)
    (work / "go.mod").write_text("\n".join(["module nodes", go, *lines, ""]))
    programs = {
        "jobset": JOBSET_MODULE,
        "trainer": f"{TRAINER_MODULE}/cmd/trainer-controller-manager",
    }
    _compile(work, programs, folder)
    for kind, module, pattern in MANIFESTS:
        for file in Path(sources[module]["Dir"]).glob(pattern):
            if file.name != "kustomization.yaml":
                (folder / f"{kind}-{file.name}").write_bytes(file.read_bytes())


def _download(module: str, version: str) -> Mapping[str, str]:
    """Download a module; return the folders of its files and of its ``go.mod``."""
    call = ["go", "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, cwd="/")
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def _compile(work: Path, programs: Mapping[str, str], folder: Path, flags: str = "") -> None:
    """Compile packages of the module in ``work``, and delete the module."""
    options = f"{os.environ.get('GOFLAGS', '')} -mod=mod -trimpath".strip()
    environment = {**os.environ, "GOFLAGS": options, "CGO_ENABLED": "0"}
    for name, package in programs.items():
        call = ["go", "build", "-ldflags", f"-s -w {flags}", "-o", str(folder / name), package]
        subprocess.run(call, cwd=work, env=environment, check=True)
    shutil.rmtree(work)
