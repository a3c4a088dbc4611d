"""Images: their base by digest, their packages by hash, and the list of their packages."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from containers import build, sbom

ROOT = Path(__file__).parents[2]
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize(
    "base", ["python:3.11-slim-bookworm", "localhost.example/base:1", "python@sha256:12ab"]
)
def test_a_base_image_without_a_digest_is_refused(base: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "containers/build.py",
        "--base",
        base,
        "--output",
        str(tmp_path / "images.json"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: --base {base} has no digest")


@pytest.mark.parametrize(
    "base", [f"python:3.11-slim-bookworm@sha256:{'0f' * 32}", "localhost/bifocal-base"]
)
def test_a_base_image_with_a_digest_or_of_this_machine_is_accepted(base: str) -> None:
    build.check_base(base)


def test_the_containerfile_has_no_base_image_of_its_own() -> None:
    text = (ROOT / "containers" / "Containerfile").read_text()
    assert set(re.findall(r"^ARG BASE.*|^FROM (\S+)", text, flags=re.MULTILINE)) == {
        "",
        "${BASE}",
        "stage",
    }
    assert re.search(r"^ARG BASE$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("group", build.GROUPS)
def test_each_group_has_a_target_and_requirements(group: str) -> None:
    command = build.build_command("docker", "localhost/bifocal:x", {"GROUP": group}, None)
    target = command[command.index("--target") + 1]
    assert re.search(
        rf"^FROM \S+ AS {target}$",
        (ROOT / "containers" / "Containerfile").read_text(),
        re.MULTILINE,
    )
    assert ROOT / "requirements" / f"{group}.txt" in REQUIREMENTS


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_every_requirement_has_a_version_and_hashes(file: Path) -> None:
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE)
    for requirement in text.replace("\\\n", "").strip().splitlines():
        assert re.match(
            r"[\w.-]+(\[[\w,-]+\])?==\S+( ; .*?)?\s+--hash=sha256:[0-9a-f]{64}", requirement
        ), requirement


def test_the_packages_of_a_cpu_only_image_are_those_without_cuda() -> None:
    text = (ROOT / "containers" / "Containerfile").read_text()
    (pattern,) = re.findall(r"grep -oE '(\S+)' \S+ > /tmp/excludes.txt", text)
    excluded = re.findall(
        pattern.replace("(", "(?:"), (ROOT / "requirements/cpu.txt").read_text(), re.MULTILINE
    )
    assert {"nvidia-nccl-cu13", "triton", "cuda-toolkit"} <= set(excluded)
    assert not {"torch", "torchvision"} & set(excluded)


def test_bill_of_materials_is_valid_cyclonedx() -> None:
    packages = {
        "python": [
            ["torch", "2.15.0+cpu", "BSD-3-Clause"],
            ["aiohttp", "3.14.5", "Apache-2.0 AND MIT"],
            ["x", "1", None],
        ],
        "debian": [["git", "1:2.39.5-0+deb12u2", "amd64"]],
    }
    text = sbom.bill_of_materials("localhost/bifocal:cpu", packages)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert document["metadata"]["component"]["name"] == "localhost/bifocal:cpu"
    assert "pkg:deb/debian/git@1:2.39.5-0%2Bdeb12u2?arch=amd64" in {
        entry["purl"] for entry in document["components"]
    }


def test_inventory_lists_the_packages_of_the_python_that_runs_it(tmp_path: Path) -> None:
    query = tmp_path / "dpkg-query"
    query.write_text("#!/bin/sh\nprintf 'git\\t1:2.39.5\\tamd64\\n'\n")
    query.chmod(0o755)
    packages = sbom.read_json("env", f"PATH={tmp_path}", sys.executable, "-c", sbom.INVENTORY)
    assert packages["debian"] == [["git", "1:2.39.5", "amd64"]]
    assert "pytest" in {name for name, *_ in packages["python"]}


def test_a_build_of_another_commit_installs_no_package_again() -> None:
    text = (ROOT / "containers" / "Containerfile").read_text()
    assert text.index("uv pip install") < text.index("COPY . /app") < text.index("REVISION")


def test_an_image_has_the_tracked_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, context = tmp_path / "checkout", tmp_path / "context"
    for name in ("runtime/stage.py", "runtime/.env", "recipes/my.key", "bifocal/gone.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(name)
    monkeypatch.setattr(build, "ROOT", checkout)
    build.git("init", "--quiet")
    build.git("add", "runtime/stage.py", "bifocal/gone.py")
    (checkout / "bifocal" / "gone.py").unlink()
    build.copy_checkout(context)
    copied = {path.relative_to(context).as_posix() for path in context.rglob("*") if path.is_file()}
    assert copied == {"runtime/stage.py"}
    for target in ("/etc/passwd", "../runtime/stage.py"):
        link = checkout / "bifocal" / "link.py"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        build.git("add", "bifocal/link.py")
        with pytest.raises(ValueError, match=r"bifocal/link\.py is a link"):
            build.copy_checkout(context)


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        "runtime/.env",
        "a/.env.local",
        "my.key",
        "x/y.pem",
        "deploy/overlays/prod/eu/secrets/search.env",
    ],
)
def test_git_ignores_files_of_secrets(name: str) -> None:
    build.git("check-ignore", "--quiet", name)
