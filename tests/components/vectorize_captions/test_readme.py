"""The YAML blocks of the README are valid parameters of the stage."""

import re
from pathlib import Path

import pytest
import yaml

from components.vectorize_captions.spec import COMPONENT
from runtime.parameters import validate

README = Path(__file__).parents[3] / "components" / "vectorize_captions" / "README.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_block_of_the_readme_is_valid(block: str) -> None:
    sections = validate({"seed": 0, **yaml.safe_load(block)}, [COMPONENT])
    assert set(sections) == {"vectorize_captions"}
