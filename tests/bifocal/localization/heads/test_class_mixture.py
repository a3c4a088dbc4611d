"""Arguments of the mixture of classes."""

import pytest

from bifocal.localization.heads import ClassMixture
from bifocal.registry import build


def test_the_part_is_built_by_its_name() -> None:
    head = build("bifocal.localization.heads", {"name": "ClassMixture", "sizes": [448, 640]})
    assert head.values()["sizes"] == (448, 640)
    assert head.sentence_encoder() is None
    assert len(head.class_texts().names) == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": ()}, "multiples of 32"),
        ({"sizes": (450,)}, "multiples of 32"),
        ({"temperature": 0}, "positive temperature"),
        ({"sigma": -1}, "sigma -1"),
        ({"threshold": 1.5}, "expected a probability"),
        ({"path": "a", "model": "b"}, "leave one out"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassMixture(**arguments)  # type: ignore[arg-type]
    assert any(message in problem for problem in ClassMixture.conflicts(arguments))
