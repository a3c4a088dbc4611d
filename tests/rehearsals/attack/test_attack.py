"""A short form of 'make attack': four attacks on a served run, with probes and searches beside
them."""

from pathlib import Path

import pytest

from pipelines.app.demo import unpack
from tests.bifocal.serving.server import running_server
from tests.rehearsals.attack.__main__ import Watch
from tests.rehearsals.attack.files import attack_files
from tests.rehearsals.attack.inputs import (
    send_broken_images,
    send_headers_of_images,
    send_nested,
    send_paths,
)


def test_probes_and_searches_are_answered_beside_attacks(tmp_path: Path) -> None:
    unpack(tmp_path / "run")
    with running_server(tmp_path / "run") as server, Watch(server) as watch:
        found = [
            attack(server)
            for attack in (send_nested, send_headers_of_images, send_broken_images, send_paths)
        ]
    assert not watch.failed
    assert watch.searches
    assert {200, 500}.isdisjoint(set(found[0]) | set(found[1]) | set(found[3]))
    assert 500 not in found[2]


@pytest.mark.slow
def test_commands_change_and_show_nothing_outside_of_a_foreign_folder(tmp_path: Path) -> None:
    unpack(tmp_path / "run")
    assert attack_files(tmp_path, tmp_path / "run")
