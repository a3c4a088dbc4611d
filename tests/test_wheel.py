"""The wheel, without a network: its packages, its command, its types. ``make wheel-test`` installs
it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bifocal
from components.catalog import all_components
from runtime.identity import source_hash
from tests.typed_user import check_types

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
HASHES = """
import json, sys
from components.catalog import all_components
from runtime.identity import source_hash
print(json.dumps({name: source_hash(component) for name, component in all_components().items()}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files of the wheel, and a package ``components`` of the user."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    (folder / "site" / "components").mkdir()
    (folder / "site" / "components" / "__init__.py").write_text("MINE = True\n")
    return folder / "site"


def python(installed: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a folder outside the checkout."""
    environment = os.environ | {"PYTHONPATH": f"{path}:{installed}"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_has_one_package(installed: Path) -> None:
    names = {path.name for path in installed.iterdir()} - {"components"}
    assert names == {"bifocal", f"bifocal_vse-{bifocal.__version__}.dist-info"}
    packages = installed / "bifocal" / "_packages"
    assert {path.name for path in packages.iterdir()} == {"components", "pipelines", "runtime"}
    assert (installed / "bifocal" / "py.typed").is_file()
    assert (packages / "pipelines" / "app" / "data" / "params.yaml").read_bytes() == (
        ROOT / "params.yaml"
    ).read_bytes()


def test_a_user_keeps_a_package_of_the_same_name(installed: Path) -> None:
    done = python(
        installed, "-c", "import components, bifocal; print(components.MINE, bifocal.__file__)"
    )
    assert done.stdout == f"True {installed}/bifocal/__init__.py\n", done.stderr
    done = python(installed, "-m", "bifocal", "components", "--help")
    assert "train_embedding" in done.stdout, done.stderr
    assert (
        python(installed, "-m", "bifocal", "--version").stdout == f"bifocal {bifocal.__version__}\n"
    )


def test_processes_that_a_command_starts_find_the_packages(installed: Path) -> None:
    child = "import runtime.spec, components.catalog; print(runtime.spec.__file__)"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    done = python(
        installed, "-c", f"from bifocal.__main__ import add_packages; add_packages(); {start}"
    )
    assert done.stdout == f"{installed}/bifocal/_packages/runtime/spec.py\n", done.stderr


def test_a_stage_has_the_same_key_as_in_a_checkout(installed: Path) -> None:
    done = python(installed, "-c", HASHES, path=str(installed / "bifocal" / "_packages"))
    assert done.returncode == 0, done.stderr
    expected = {name: source_hash(component) for name, component in all_components().items()}
    assert json.loads(done.stdout) == expected


def test_another_distribution_of_the_same_import_name_is_an_error(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "bifocal-1.2.dist-info").mkdir()
    (tmp_path / "bifocal-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: bifocal\nVersion: 1.2\n"
    )
    done = python(installed, "-m", "bifocal", "demo", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "error: the distribution 'bifocal' 1.2 is installed. It is not 'bifocal-vse', and both "
        "write the package "
        "'bifocal': run 'pip uninstall bifocal bifocal-vse', then install this package again from "
        "its clone or wheel\n"
    )


def test_the_facade_has_types_and_names(tmp_path: Path) -> None:
    assert {"load", "TrainedModel", "__version__"} <= set(dir(bifocal))
    # Without installed packages, which take mypy half a minute.
    check_types(
        tmp_path, sys.executable, "--no-site-packages", "--ignore-missing-imports", path=ROOT
    )
