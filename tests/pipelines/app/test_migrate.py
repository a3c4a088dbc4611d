"""``bifocal migrate``."""

import shutil
from pathlib import Path

import yaml

from tests.pipelines.app.conftest import Command

FORMER = Path(__file__).parents[1] / "migration" / "versions" / "0.1"


def test_a_file_is_rewritten_and_its_former_text_kept(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    shutil.copy(FORMER / "params.yaml", file)
    former = file.read_text()
    result = command("migrate", "--check", file)
    assert result.exit_code == 1
    assert "train_embedding.clip_norm -> train_embedding.max_grad_norm" in result.output
    assert file.read_text() == former
    result = command("migrate", file)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "params.yaml.bak").read_text() == former
    assert yaml.safe_load(file.read_text())["train_embedding"]["max_grad_norm"] == 2.0
    result = command("migrate", "--check", file)
    assert result.exit_code == 0
    assert "parameters of this version, no changes" in result.output


def test_what_is_left_to_do_is_listed(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train_embedding: {dim: 8, marginn: 0.1}\n")
    result = command("migrate", file)
    assert result.exit_code == 1
    assert "to do: train_embedding.marginn: unknown key" in result.output
    assert yaml.safe_load(file.read_text()) == {"train_embedding": {"model": {"dim": 8}, "marginn": 0.1}}


def test_a_copy_of_an_earlier_migration_is_not_overwritten(command: Command, tmp_path: Path) -> None:
    file, backup = tmp_path / "mine.yaml", tmp_path / "mine.yaml.bak"
    file.write_text("train_embedding: {dim: 8}\n")
    backup.write_text("kept")
    result = command("migrate", file)
    assert isinstance(result.exception, FileExistsError)
    assert (file.read_text(), backup.read_text()) == ("train_embedding: {dim: 8}\n", "kept")


def test_another_file_is_named(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("- 1\n")
    assert str(command("migrate", file).exception).startswith(f"{file}: expected sections")
