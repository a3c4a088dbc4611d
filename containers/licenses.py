"""The license of an installed package, from the fields that packages use for it.

``containers/sbom.py`` runs this file in an image, so it imports nothing outside of Python.
"""

from email.message import Message

CLASSIFIER = "License :: OSI Approved :: "
LONGEST = 100
"""Characters of a name; the field ``License`` of some packages has the whole text."""


def license_of(metadata: Message) -> str | None:
    """Return ``License-Expression``, else the classifiers of licenses, else ``License`` if it is a
    name; else None."""
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    names = [
        value.removeprefix(CLASSIFIER)
        for value in metadata.get_all("Classifier", [])
        if value.startswith(CLASSIFIER)
    ]
    if names:
        return " or ".join(sorted(names))
    named = str(metadata.get("License") or "").strip()
    return named if 0 < len(named) <= LONGEST and "\n" not in named else None
