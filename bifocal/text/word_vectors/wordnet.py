"""Lemmas by WordNet's own rules, from its two files of nouns."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("ves", "f"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
"""Of nouns, from WordNet's ``morphy``; what NLTK's lemmatizer uses unless it is told a part of speech."""

FILES = ("index.noun", "noun.exc")


@dataclass(frozen=True)
class WordNet:
    """Nouns and irregular plurals.

    Attributes:
        nouns: every lemma.
        exceptions: lemmas of an irregular form.
    """

    nouns: frozenset[str]
    exceptions: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, folder: Path) -> "WordNet":
        """Read WordNet's database files.

        Raises:
            FileNotFoundError: one of the two is missing.
        """
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder / name}: no such file; lemmas need WordNet's {' and '.join(FILES)}: unpack "
                    "WNdb-3.0.tar.gz (wordnet.princeton.edu) or NLTK's corpora/wordnet, and set "
                    "path to that folder, or fallback: stem"
                )
        lines = (folder / FILES[0]).read_text(encoding="utf-8").splitlines()
        nouns = frozenset(line.partition(" ")[0] for line in lines if not line.startswith(" "))
        irregular = (line.split() for line in (folder / FILES[1]).read_text(encoding="utf-8").splitlines())
        return cls(nouns, {fields[0]: tuple(fields[1:]) for fields in irregular if fields})

    def lemma(self, word: str) -> str:
        """The shortest noun that ``word`` can be a form of; the word itself if WordNet knows none."""
        if word in self.exceptions:
            forms = [word, *self.exceptions[word]]
        else:
            forms = [word, *(word[: -len(end)] + by for end, by in ENDINGS if word.endswith(end))]
        return min((form for form in forms if form in self.nouns), key=len, default=word)
