"""One script per paper: each runs at small size, prints what it returns, and writes its picture."""

import math
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
IMAGES = 24
SCRIPTS = (
    "bean",
    "multi_level",
    "own_domain",
    "semantic_retrieval",
    "smile",
    "sodeep",
    "structure_preserving",
)
MAX_LINES = 160


def run(name: str, home: Path) -> Mapping[str, float]:
    results: Mapping[str, float] = import_module(f"examples.{name}").main(images=IMAGES, home=home)
    return results


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_prints_its_results_and_writes_a_picture(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(name, home)
    printed = capsys.readouterr().out
    for key, value in results.items():
        assert math.isfinite(value), key
        (shown,) = re.findall(
            rf"^{re.escape(key)} +(-?[\d.]+)(?: %)?$", printed, flags=re.MULTILINE
        )
        assert float(shown) == pytest.approx(value, abs=0.051)
        if "chance" in key:  # one of 12 test images, or ten of them
            assert value == pytest.approx(100 * (10 if "R@10" in key else 1) / (IMAGES // 2))
    with Image.open(home / f"{name}.png") as picture:
        assert picture.convert("L").entropy() > 0.5, "the picture is empty"
        assert min(picture.size) > 150


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_short_and_names_its_command(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert f"    python examples/{name}.py --images 400\n" in text
    assert f"runs/examples/{name}.png" in text


def test_scripts_share_their_images_and_features() -> None:
    """The same lines prepare them; multi_level.py has two levels of features, own_domain.py a
    contrastive model."""
    others = ("multi_level", "own_domain")
    texts = [
        (ROOT / "examples" / f"{name}.py").read_text() for name in SCRIPTS if name not in others
    ]
    assert (
        len(
            {
                re.findall(r"prepare_inputs\(\n.*?weights=.*?\n", text, flags=re.DOTALL)[0]
                for text in texts
            }
        )
        == 1
    )


def test_table_of_examples_is_complete() -> None:
    files = {
        path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")
    }
    readme = (ROOT / "examples" / "README.md").read_text()
    linked = re.findall(r"^\|\[([\w.]+)\]\(([\w.]+)\)\|", readme, flags=re.MULTILINE)
    assert all(text == target for text, target in linked)
    assert {target for _, target in linked} == files - {"execute.py"}
