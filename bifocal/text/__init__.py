"""Text: tokens, vocabulary and the text store. One vectorizer per file in ``vectorizers``."""

from bifocal.text.elmo import Elmo
from bifocal.text.format import Text
from bifocal.text.store import TextStore
from bifocal.text.tokens import tokenize
from bifocal.text.vocabulary import Vocabulary
