"""Build the images of this checkout with podman, buildah or docker, and note their digests.

    python containers/build.py --group cpu --group gpu --group serve --name registry.example/bifocal --push

Only what git knows of the checkout, or would, goes into an image. The certificates that this machine trusts are lent to
the build as a secret, which no image keeps: packages may come by a proxy that has its own. ``images.json`` then holds
the digests, for ``python -m pipelines compile --images images.json``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENGINES = ("podman", "buildah", "docker")
GROUPS = ("cpu", "gpu", "serve")
TRUSTED = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
CODE = ("bifocal", "components", "pipelines", "recipes", "requirements", "params.yaml", "dvc.yaml", "pyproject.toml")


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", choices=GROUPS, help="may be repeated; cpu, unless given")
    parser.add_argument("--base", help="image to build on, such as a mirror's or that of containers/base.sh")
    parser.add_argument("--name", default="localhost/bifocal", help="of the images, without a tag")
    parser.add_argument("--engine", choices=ENGINES, help="the first of them that is installed, unless given")
    parser.add_argument("--option", action="append", default=[], help="of the engine's build; may be repeated")
    parser.add_argument("--certificates", type=Path, help=f"PEM file that packages come by; {TRUSTED}, unless given")
    parser.add_argument("--push", action="store_true", help="push them; a cluster needs what the registry then names")
    parser.add_argument("--output", type=Path, default=Path("images.json"))
    given = parser.parse_args()
    certificates = given.certificates or (TRUSTED if TRUSTED.is_file() else None)
    if certificates and not certificates.is_file():
        raise ValueError(f"--certificates {certificates}: no such file; 'update-ca-certificates' writes {TRUSTED}")
    engine = given.engine or next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        raise ValueError(f"none of {', '.join(ENGINES)} is installed: 'apt-get install podman' brings the first")
    digests = json.loads(given.output.read_text()) if given.output.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        copy_checkout(context)
        for group in given.group or ["cpu"]:
            tag = f"{given.name}:{group}"
            revision = git("describe", "--always", "--dirty", "--abbrev=40")
            call(*build_command(engine, group, tag, revision, given.base, certificates), *given.option, folder)
            if given.push:
                call(engine, "push", tag)
            digests[group] = digest(engine, given.name, tag, pushed=given.push)
            given.output.write_text(json.dumps(digests, indent=2) + "\n")
            sys.stdout.write(f"{digests[group]}\n")


def build_command(
    engine: str, group: str, tag: str, revision: str, base: str | None, certificates: Path | None
) -> list[str]:
    """The command but for its context; podman and buildah keep a health check in their docker format alone."""
    arguments = {"GROUP": group, "REVISION": revision} | ({"BASE": base} if base else {})
    return [
        *(engine, "build", "--file", str(ROOT / "containers" / "Containerfile"), "--tag", tag),
        *("--target", "serve" if group == "serve" else "stage"),
        *(part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")),
        *(["--secret", f"id=certificates,src={certificates.resolve()}"] if certificates else []),
        # Without layers: buildah 1.28 does not find a stage that is mounted if its layers come from the cache.
        *([] if engine == "docker" else ["--format", "docker", "--layers=false"]),
    ]


def copy_checkout(context: Path) -> None:
    """Copy the files that git tracks, or would, to ``context``."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *CODE)
    for name in filter(lambda name: (ROOT / name).is_file(), listed.split("\0")):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)


def digest(engine: str, name: str, tag: str, *, pushed: bool) -> str:
    """The image by its content: as the registry names it if it was pushed, otherwise as this machine does."""
    if engine == "docker":
        found = json.loads(call(engine, "image", "inspect", tag, quiet=True))[0]
        return str(found["RepoDigests"][0] if pushed else found["Id"])
    if engine == "buildah":
        return f"{name}@{json.loads(call(engine, 'inspect', '--type=image', tag, quiet=True))['FromImageDigest']}"
    return f"{name}@{json.loads(call(engine, 'image', 'inspect', tag, quiet=True))[0]['Digest']}"


def git(*arguments: str) -> str:
    """What git answers about this checkout."""
    return call("git", *arguments, quiet=True).strip()


def call(*command: str, quiet: bool = False) -> str:
    """Run ``command`` in the checkout; what it wrote if it is ``quiet``, otherwise that is shown.

    Raises:
        ValueError: it failed.
    """
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE if quiet else None, text=True, check=False)
    if done.returncode:
        raise ValueError(
            f"'{' '.join(command[:4])} ...' failed with exit code {done.returncode}: its own words stand above"
        )
    return done.stdout or ""


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
