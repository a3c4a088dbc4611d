"""Build the images of this checkout with podman, buildah or docker, and write their digests.

    python containers/build.py --base python:3.11-slim-bookworm@sha256:... --group cpu --group gpu
    \\
      --name registry.example/bifocal --push

The base image must have a digest, because the content of a tag changes. An image contains the
tracked files of the checkout. The build mounts the
certificates of this machine as a secret, because a proxy may have its own; no image contains them.
``images.json`` holds the digests, for ``python -m pipelines compile --images images.json``;
``images.cpu.cdx.json`` beside it lists the packages of the image (``containers/sbom.py``).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENGINES = ("podman", "buildah", "docker")
GROUPS = ("cpu", "gpu", "serve", "tracking")
CERTIFICATES = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
FILES = (
    *("bifocal", "runtime", "components", "pipelines", "recipes", "requirements"),
    *("params.yaml", "dvc.yaml", "pyproject.toml"),
)


def main() -> None:
    """Build the images that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--group", action="append", choices=GROUPS, help="may be repeated; default: cpu"
    )
    parser.add_argument(
        "--base", required=True, help="base image with its digest, or one of containers/base.sh"
    )
    parser.add_argument(
        "--torch-backend",
        choices=("cpu",),
        help="torch without CUDA for the cpu image: see pipelines/README.md",
    )
    parser.add_argument(
        "--name", default="localhost/bifocal", help="name of the images without a tag"
    )
    parser.add_argument("--engine", choices=ENGINES, help="default: the first that is installed")
    parser.add_argument(
        "--option", action="append", default=[], help="build option of the engine; may be repeated"
    )
    parser.add_argument(
        "--certificates", type=Path, help=f"PEM file for downloads; default: {CERTIFICATES}"
    )
    parser.add_argument(
        "--push", action="store_true", help="push to the registry, as a cluster needs it"
    )
    parser.add_argument("--output", type=Path, default=Path("images.json"))
    options = parser.parse_args()
    certificates = options.certificates or (CERTIFICATES if CERTIFICATES.is_file() else None)
    if certificates and not certificates.is_file():
        raise ValueError(
            f"--certificates {certificates}: no such file; 'update-ca-certificates' writes "
            f"{CERTIFICATES}"
        )
    check_base(options.base)
    engine = options.engine or next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        raise ValueError(
            f"none of {', '.join(ENGINES)} is installed: 'apt-get install podman' installs the "
            "first"
        )
    digests = json.loads(options.output.read_text()) if options.output.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        copy_checkout(context)
        for group in options.group or ["cpu"]:
            tag = f"{options.name}:{group}"
            revision = git("describe", "--always", "--dirty", "--abbrev=40")
            arguments = {"GROUP": group, "REVISION": revision, "BASE": options.base}
            if options.torch_backend and group == "cpu":
                arguments["TORCH_BACKEND"] = options.torch_backend
            call(*build_command(engine, tag, arguments, certificates), *options.option, folder)
            if options.push:
                call(engine, "push", tag)
            digests[group] = digest(engine, options.name, tag, pushed=options.push)
            options.output.write_text(json.dumps(digests, indent=2) + "\n")
            bill = options.output.with_suffix(f".{group}.cdx.json")
            call(
                sys.executable,
                "containers/sbom.py",
                tag,
                "--engine",
                engine,
                "--output",
                str(bill.resolve()),
            )
            sys.stdout.write(f"{digests[group]}\n")


def check_base(base: str) -> None:
    """Check that the name of the base image has a digest, or is an image of this machine.

    Raises:
        ValueError: it has none.
    """
    if not base.startswith("localhost/") and not re.fullmatch(r".+@sha256:[0-9a-f]{64}", base):
        raise ValueError(
            f"--base {base} has no digest, so its content may change: give "
            f"{base.partition('@')[0]}@sha256:..., which 'docker buildx imagetools inspect "
            f"{base}' or 'skopeo inspect docker://{base}' prints; only images of this machine, "
            "localhost/..., may have none"
        )


def build_command(
    engine: str, tag: str, arguments: Mapping[str, str], certificates: Path | None
) -> list[str]:
    """Return the build command without its context. Only the docker format supports health
    checks."""
    group = arguments["GROUP"]
    return [
        *(engine, "build", "--file", str(ROOT / "containers" / "Containerfile"), "--tag", tag),
        *("--target", group if group in ("serve", "tracking") else "stage"),
        *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
        *(["--secret", f"id=certificates,src={certificates.resolve()}"] if certificates else []),
        # No layers: buildah 1.28 does not find a mounted stage whose layers are cached.
        *([] if engine == "docker" else ["--format", "docker", "--layers=false"]),
    ]


def copy_checkout(context: Path) -> None:
    """Copy the tracked files to ``context``: others may be secrets.

    Raises:
        ValueError: one of them is a link, whose target may be anywhere.
    """
    for name in git("ls-files", "-z", "--", *FILES).split("\0"):
        if not (ROOT / name).is_file():  # deleted
            continue
        if (ROOT / name).resolve() != ROOT.resolve() / name:
            raise ValueError(f"{name} is a link: replace it by its file, and commit that")
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)


def digest(engine: str, name: str, tag: str, *, pushed: bool) -> str:
    """Return an image's digest: the registry's digest if it was pushed, else this machine's."""
    if engine == "docker":
        image = json.loads(call(engine, "image", "inspect", tag, quiet=True))[0]
        return str(image["RepoDigests"][0] if pushed else image["Id"])
    if engine == "buildah":
        return f"{name}@{json.loads(call(engine, 'inspect', '--type=image', tag, quiet=True))['FromImageDigest']}"
    return f"{name}@{json.loads(call(engine, 'image', 'inspect', tag, quiet=True))[0]['Digest']}"


def git(*arguments: str) -> str:
    """Return the output of a git command in this checkout."""
    return call("git", *arguments, quiet=True).strip()


def call(*command: str, quiet: bool = False) -> str:
    """Run ``command`` in the checkout.

    Args:
        quiet: return the output instead of printing it.

    Raises:
        ValueError: the command failed.
    """
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE if quiet else None, text=True, check=False
    )
    if done.returncode:
        raise ValueError(
            f"'{' '.join(command[:4])} ...' failed with exit code {done.returncode}: see its "
            "output above"
        )
    return done.stdout or ""


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
