"""The wheel in a fresh environment, as a stranger installs it: no torch, and an answer within
seconds.

    make wheel-test

Needs uv and a network for the packages of ``bifocal-vse[cpu]``; 'make test-slow' runs its commands
with torch blocked.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest
from PIL import Image

from tests.typed_user import check_types

ROOT = Path(__file__).parents[2]


def named_extras() -> set[str]:
    """Return the arguments of each call of ``install`` in the sources."""
    folders = ("bifocal", "components", "pipelines", "runtime")
    texts = [file.read_text() for name in folders for file in (ROOT / name).rglob("*.py")]
    return {found for text in texts for found in re.findall(r"\binstall\(('[^)]*')\)", text)}


SECONDS = 10
"""CPU time of the first answers after the installation, of all threads together.

The bar is one of wall time. On a machine without other work, the wall time is at most the CPU time
and the time to read the files. The wall time is printed: 'pytest --capture no'.
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel of this checkout and the extra cpu."""
    folder = tmp_path_factory.mktemp("wheel")
    run("uv", "build", "--wheel", "--quiet", "--out-dir", folder, ROOT)
    run("uv", "venv", "--quiet", folder / "venv")
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    package = f"bifocal-vse[cpu] @ file://{wheel}"
    run("uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python, package)
    (site,) = folder.glob("venv/lib/*/site-packages")
    (site / "components").mkdir()  # of the user
    (site / "components" / "__init__.py").write_text("MINE = True\n")
    return folder / "venv" / "bin"


def run(*command: object, cwd: Path = ROOT, code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = tuple(map(str, command))
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_light_install_has_no_torch(environment: Path) -> None:
    packages = run("uv", "pip", "list", "--python", environment / "python")
    assert not [
        name
        for name in ("torch", "timm", "gensim", "mlflow", "scipy", "matplotlib")
        if f"\n{name} " in packages
    ]


def test_the_demo_answers_within_seconds(environment: Path, tmp_path: Path) -> None:
    before, start = getrusage(RUSAGE_CHILDREN), time.monotonic()
    output = run(environment / "bifocal", "demo", cwd=tmp_path)
    after = getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sys.stdout.write(
        f"bifocal demo: {time.monotonic() - start:.1f} s of wall time, {cpu:.1f} s of CPU time\n"
    )
    assert cpu < SECONDS
    assert output.count("-> bifocal-demo/") == 3
    run(environment / "bifocal", "search", "a red star", "--run", "bifocal-demo", cwd=tmp_path)
    image = "bifocal-demo/images/00000.jpg"
    run(environment / "bifocal", "where", image, "red star", "--run", "bifocal-demo", cwd=tmp_path)
    run(environment / "bifocal", "delete", "test-00001", "--run", "bifocal-demo", cwd=tmp_path)
    for file in (tmp_path / image).parent.iterdir():
        file.with_suffix(".txt").write_text(f"a red star, {file.stem}\n")
    run(environment / "bifocal", "inspect", "bifocal-demo/images", cwd=tmp_path)
    script = (
        "import bifocal; print(bifocal.load('bifocal-demo').search('a red star', k=1)[0].captions)"
    )
    run(environment / "python", "-c", script, cwd=tmp_path)


def test_a_package_of_the_user_keeps_its_name(environment: Path, tmp_path: Path) -> None:
    """The other tests run beside it."""
    assert (
        run(environment / "python", "-c", "import components; print(components.MINE)", cwd=tmp_path)
        == "True\n"
    )
    (tmp_path / "runtime.py").write_text("raise SystemExit('imported')\n")
    assert "train_embedding" in run(
        environment / "python", "-m", "bifocal", "components", "--help", cwd=tmp_path
    )


def test_a_script_of_a_user_has_types(environment: Path, tmp_path: Path) -> None:
    check_types(tmp_path, environment / "python")


def test_the_other_project_of_this_name_is_an_error(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "bifocal").mkdir(parents=True)
    (tmp_path / "other" / "bifocal" / "accounts.py").touch()
    (tmp_path / "other" / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "bifocal"\nversion = '
        '"1.2"\n[tool.hatch.build.targets.wheel]\npackages = ["bifocal"]\n'
    )
    python = environment / "python"
    run("uv", "pip", "install", "--quiet", "--python", python, tmp_path / "other")
    try:
        output = run(environment / "bifocal", "demo", cwd=tmp_path, code=1)
    finally:
        run("uv", "pip", "uninstall", "--quiet", "--python", python, "bifocal")
    assert "run 'pip uninstall bifocal bifocal-vse', then install this package again" in output


def test_other_commands_name_the_missing_extra(environment: Path, tmp_path: Path) -> None:
    (wheel,) = environment.parents[1].glob("*.whl")
    output = run(environment / "bifocal", "train", tmp_path, code=1)
    command = f"pip install '{wheel}[train,cpu]'"
    assert output == f"Error: 'bifocal train' needs the package boto3: {command}\n"
    output = run(environment / "bifocal", "serve", code=1)
    assert output.endswith(f": pip install '{wheel}[serve,cpu]'\n")
    output = run(environment / "bifocal", "inspect", tmp_path / "none", code=2)
    assert "does not exist" in output


@pytest.mark.parametrize("extras", sorted(named_extras()))
def test_each_named_command_installs(extras: str, environment: Path) -> None:
    code = f"from bifocal.version import install; print(install({extras}))"
    command = shlex.split(run(environment / "python", "-c", code))
    python = ("--dry-run", "--python", environment / "python")
    assert "Would " in run("uv", *command[:2], *python, *command[2:])


def test_the_first_block_of_readme_works_in_an_empty_environment(tmp_path: Path) -> None:
    """As typed, with this checkout as the address; installation and first index are small."""
    text = (ROOT / "README.md").read_text()
    block = re.findall(r"^    (.*)$", text[: text.index("```")], re.MULTILINE)
    assert block[-1].startswith("bifocal serve")  # it does not end
    for number in range(40):
        (tmp_path / "bifocal-photos").mkdir(exist_ok=True)
        Image.effect_noise((320, 240), 20 + number).save(
            tmp_path / "bifocal-photos" / f"{number:04}.jpg"
        )
    lines = "\n".join(block[:-1]).replace("<address of this repository>", str(ROOT))
    lines = lines.replace("photos/0001", "../bifocal-photos/0001")
    lines = lines.replace("index photos", "index ../bifocal-photos")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    before = getrusage(RUSAGE_CHILDREN)
    clone, install, *first = lines.splitlines()
    inside = "cd bifocal && . .venv/bin/activate"
    for script in (f"{clone}\n{install}", "\n".join([inside, *first])):
        before = getrusage(RUSAGE_CHILDREN)
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    after = getrusage(RUSAGE_CHILDREN)
    assert "40 images can be searched: 40 new" in done.stdout
    assert "no 'a dog' in this image" in done.stdout
    # Of index, search and where together.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2 * SECONDS
    files = (tmp_path / "bifocal" / ".venv").rglob("*")
    assert sum(file.lstat().st_size for file in files if file.is_file()) < 750e6
