"""One image for all pods: it has only folders, where each node mounts the files of this machine."""

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
APP = "/app"
PAUSE, SERVE, STEPS, PROXY = (
    "localhost/pause:1",
    "localhost/bifocal:serve",
    "localhost/bifocal:cpu",
    "localhost/nginx-unprivileged:stable",
)
FOLDERS = ("app", "dev", "etc", "images", "proc", "root", "run", "sys", "tmp", "usr", "var")
LINKS = ("bin", "sbin", "lib", "lib64")


def mounts() -> list[dict[str, Any]]:
    """Return the mounts of each container: the system's programs, Python, and this checkout."""
    environment, base = str(Path(sys.prefix).resolve()), sys.base_prefix
    sources = {"/usr": "/usr", base: base, environment: environment, APP: str(ROOT)}
    if base.startswith("/usr"):
        del sources[base]
    options = ["rbind", "ro"]
    return [
        {"destination": target, "source": source, "type": "bind", "options": options}
        for target, source in sources.items()
    ]


def write_images(file: Path, pause: Path) -> None:
    """Write the archive of all images for ``ctr images import``; ``pause`` is a program."""
    python = Path(sys.prefix).resolve() / "bin"
    variables = {
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/usr/sbin",
        "PYTHONPATH": APP,
        "HOME": "/tmp",
        "LOGNAME": "bifocal",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment = [f"{name}={value}" for name, value in variables.items()]
    parts: dict[str, bytes] = {}
    manifest = [
        _image(
            parts,
            [PAUSE],
            {"Entrypoint": ["/pause"]},
            {"pause": (tarfile.REGTYPE, pause.read_bytes())},
        ),
        _image(
            parts,
            [SERVE, STEPS, PROXY],
            {"Env": environment, "WorkingDir": APP, "User": "1000:1000"},
            {
                **{name: (tarfile.DIRTYPE, b"") for name in FOLDERS},
                **{name: (tarfile.SYMTYPE, f"usr/{name}".encode()) for name in LINKS},
            },
        ),
    ]
    parts["manifest.json"] = json.dumps(manifest).encode()
    file.write_bytes(_tar({name: (tarfile.REGTYPE, content) for name, content in parts.items()}))


def _image(
    parts: dict[str, bytes],
    names: Iterable[str],
    settings: Mapping[str, Any],
    entries: Mapping[str, tuple[bytes, bytes]],
) -> dict[str, Any]:
    """Add an image of one layer to the archive; return its entry in the manifest."""
    layer = _tar(entries)
    digest = hashlib.sha256(layer).hexdigest()
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    file = f"{hashlib.sha256(configuration).hexdigest()}.json"
    parts |= {f"{digest}.tar": layer, file: configuration}
    return {"Config": file, "RepoTags": list(names), "Layers": [f"{digest}.tar"]}


def _tar(entries: Mapping[str, tuple[bytes, bytes]]) -> bytes:
    """Return an archive of entries with a kind, and a content or the target of a link."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, (kind, content) in entries.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o1777 if name == "tmp" else 0o755
            if kind == tarfile.SYMTYPE:
                entry.linkname = content.decode()
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()
