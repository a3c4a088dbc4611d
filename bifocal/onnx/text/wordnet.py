"""Lemmas by WordNet's rules, from its two files of nouns."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (
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
"""Noun suffixes and their replacements, from WordNet's ``morphy``; NLTK's lemmatizer uses them by default."""

FILES = ("index.noun", "noun.exc")


@dataclass(frozen=True)
class WordNet:
    """Nouns and irregular plurals of WordNet."""

    nouns: frozenset[str]  # all lemmas
    exceptions: Mapping[str, tuple[str, ...]]  # lemmas of each irregular form

    @classmethod
    def read(cls, folder: Path) -> "WordNet":
        """Read WordNet's database files."""
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder / name}: no such file; expected WordNet's {' and '.join(FILES)}: unpack WNdb-3.0.tar.gz "
                    "(wordnet.princeton.edu) or NLTK's corpora/wordnet"
                )
        lines = (folder / FILES[0]).read_text(encoding="utf-8").splitlines()
        nouns = frozenset(line.partition(" ")[0] for line in lines if not line.startswith(" "))
        irregular = (line.split() for line in (folder / FILES[1]).read_text(encoding="utf-8").splitlines())
        return cls(nouns, {fields[0]: tuple(fields[1:]) for fields in irregular if fields})

    def lemma(self, word: str) -> str:
        """Return the shortest noun of which ``word`` can be a form, or the word itself if there is none."""
        if word in self.exceptions:
            candidates = [word, *self.exceptions[word]]
        else:
            candidates = [word, *(word[: -len(end)] + stem for end, stem in SUFFIXES if word.endswith(end))]
        return min((noun for noun in candidates if noun in self.nouns), key=len, default=word)
