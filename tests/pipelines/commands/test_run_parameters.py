"""``register`` and ``release`` on the params.yaml of a run that somebody edited."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.__main__ import main


@pytest.mark.parametrize("command", ["register", "release"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline:", "pipeline is 'None'"),
        ("pipeline: [a]", "Available: embedding, late_interaction, ranking_head"),
        ("seed: 1", "pipeline is 'None'"),
        ("pipeline: embedding", "register_model: got None, expected a section"),
        ("pipeline: embedding\nregister_model: [1]", "register_model: got"),
        ("seed: 1\npipeline: embedding\nregister_model: {alias: a}", "register_model.model"),
    ],
)
def test_odd_parameters_of_a_run_are_one_error(
    command: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "params.yaml").write_text(text)
    done = CliRunner().invoke(main, [command, str(tmp_path)])
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)
