"""Text: tokens, vocabulary and the text store; ``vectorizers`` has the vectorizers."""

from typing import TYPE_CHECKING

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat, Vocabulary, tokenize
from bifocal.registry import lazy_attributes

if TYPE_CHECKING:
    from bifocal.text.elmo import Elmo
    from bifocal.text.store import TextBatch, TextStore
else:
    __getattr__ = lazy_attributes(
        __name__,
        {
            "Elmo": "text.elmo",
            "TextBatch": "text.store",
            "TextStore": "text.store",
        },
    )
