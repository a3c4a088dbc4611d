"""Images that the names of a table mean: by one rule for the whole table, or not at all."""

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple
from urllib.parse import unquote

from bifocal.datasets.formats.folder import IMAGE_SUFFIXES, Folder


class Matched(NamedTuple):
    """Images by the names of a table, and the prefix that the rule of the table adds or leaves
    out."""

    images: Mapping[str, str]
    rule: str | None = None


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _fold(name: str) -> str:
    return _nfc(_nfc(name).casefold())


def _stem(name: str) -> str:
    path = PurePosixPath(_fold(name))
    return str(path.with_suffix("")) if path.suffix in IMAGE_SUFFIXES else str(path)


Spelling = Callable[[str], str]
SPELLINGS: tuple[tuple[Spelling, Spelling], ...] = (
    (str, str),
    (_nfc, _nfc),
    (_fold, _fold),
    (lambda name: _fold(unquote(name)), _fold),
    (_fold, _stem),
)
"""Spellings of a name and of an image that mean the same: exact, composed, encoded for URLs, in
another case, without its suffix."""


def match_names(names: Iterable[str], folder: Folder, base: str = "") -> Matched:
    r"""Return the images that the names of a table mean.

    The exact name wins. Else one rule holds for all names: the spelling of each may differ
    ("./", backslashes, composition, encoding for URLs, case, a missing suffix), and if no name
    fits, all may be below one folder of the images, or all in one folder that is left out. Two
    names never mean one image, and no name means two: these have none.

    Args:
        base: folder of the table, to which its names are relative, such as "train/".
    """
    found: dict[str, str] = {}
    plain = {name: name.strip().replace("\\", "/").removeprefix("./") for name in names}
    for place in dict.fromkeys((base, "")):
        for name, path in plain.items():
            exact = next((each for each in (place + name, place + path) if folder.has(each)), None)
            if exact is not None:
                found[name] = exact
        _respell({name: place + path for name, path in plain.items()}, folder.images, found)
        if found:
            break
    if len(found) == len(plain):
        return Matched(found)
    for spelling in SPELLINGS:
        rules = _prefixes(plain.values(), folder.images, spelling)
        whole = [rule for rule, count in rules.items() if count == len(set(plain.values()))]
        # Beside names that fit as they are, only a rule of all names counts.
        chosen = whole if len(whole) == 1 or found else list(rules)
        if len(chosen) == 1:
            removed, added = chosen[0]
            moved = {
                name: added + path.removeprefix(removed)
                for name, path in plain.items()
                if path.startswith(removed) and ".." not in path.split("/")
            }
            _respell(moved, folder.images, found)
            text = f"without {removed!r}" if removed else f"below {added!r}"
            return Matched(found, f"the names of images are read {text}")
        if rules:
            break
    return Matched(found)


def last_parts(names: Iterable[str | None], images: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a text ends like the path of an image, with its suffix if ``names`` have
    one."""
    suffixes = {PurePosixPath(_fold(name)).suffix for name in names if name}
    key = _stem if suffixes.isdisjoint(IMAGE_SUFFIXES) else _fold

    def last(path: str) -> str:
        return key(PureWindowsPath(path.strip()).name)

    known = set(map(last, images))
    return lambda text: last(text) in known


def _respell(paths: Mapping[str, str], images: Sequence[str], found: dict[str, str]) -> None:
    """Add the images of names that are not found yet, by the first spelling that fits."""
    for spelling in SPELLINGS:
        rest = {name: path for name, path in paths.items() if name not in found}
        if rest:
            found |= _spelled(rest, images, spelling, set(found.values()))


def _spelled(
    names: Mapping[str, str],
    images: Sequence[str],
    spelling: tuple[Spelling, Spelling],
    used: set[str],
) -> dict[str, str]:
    """Return the images that one name each means by a spelling, except ``used`` ones."""
    of_name, of_image = spelling
    by_key: dict[str, list[str]] = {}
    for image in images:
        by_key.setdefault(of_image(image), []).append(image)
    keys = {name: of_name(path) for name, path in names.items()}
    # Spellings of one path, such as a.jpg and ./a.jpg, are one name.
    paths = Counter(key for key, _ in {(keys[name], path) for name, path in names.items()})
    found = {}
    for name, key in keys.items():
        means = by_key.get(key, [])
        if len(means) == 1 and paths[key] == 1 and means[0] not in used:
            found[name] = means[0]
    return found


def _prefixes(
    paths: Iterable[str], images: Sequence[str], spelling: tuple[Spelling, Spelling]
) -> Counter[tuple[str, str]]:
    """Return the rules that make images of names, with the numbers of their images: a folder of all
    names to leave out, and a folder to add."""
    of_name, of_image = spelling
    names = sorted({path for path in paths if ".." not in path.split("/")})
    known = {of_image(image) for image in images}
    by_last: dict[str, list[tuple[str, str]]] = {}
    for image in images:
        key = of_image(image)
        by_last.setdefault(key.rpartition("/")[2], []).append((key, image))
    rules = Counter[tuple[str, str]]()
    folders = [name.split("/")[:-1] for name in names]
    shared = os.path.commonprefix(folders)  # noqa: RUF071 - of lists
    for end in range(1, len(shared) + 1):
        prefix = "/".join(shared[:end]) + "/"
        if count := sum(of_name(name[len(prefix) :]) in known for name in names):
            rules[prefix, ""] = count
    for name in names:
        key = of_name(name)
        for other, image in by_last.get(key.rpartition("/")[2], []):
            if other.endswith(f"/{key}"):
                depth = len(image.split("/")) - len(key.split("/"))
                rules["", "/".join(image.split("/")[:depth]) + "/"] += 1
    return rules
