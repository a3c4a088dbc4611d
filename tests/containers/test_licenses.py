"""Licenses of required packages: none of the service and of the search is stronger than MPL; others
are named."""

import re
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from containers.licenses import license_of

ROOT = Path(__file__).parents[2]
SERVED = ("cpu", "search", "serve", "site")
STRONGER = re.compile(r"GPL|General Public License|EUPL|SSPL|Proprietary|NVIDIA", re.IGNORECASE)
EXCEPTIONS = ("gensim", "grandalf", "pygit2")
"""Of the other extras, besides the packages of NVIDIA, which torch needs on Linux."""


def required(name: str, extras: tuple[str, ...]) -> dict[str, Message]:
    """Return the metadata of the installed packages that a package with extras requires, of all
    depths."""
    found: dict[str, Message] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    todo = [(name, extras)]
    while todo:
        package, names = todo.pop()
        try:
            installed = distribution(package)
        except PackageNotFoundError:
            continue  # for another system
        found[package.lower().replace("_", "-")] = installed.metadata  # type: ignore[assignment]
        for text in installed.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": e}) for e in (*names, "")
            ):
                key = (requirement.name, tuple(sorted(requirement.extras)))
                if key not in seen:
                    seen.add(key)
                    todo.append(key)
    return found


def is_stronger(license_name: str) -> bool:
    """Return whether each alternative of a license is stronger than MPL."""
    return all(
        STRONGER.search(name) for name in re.split(" or ", license_name, flags=re.IGNORECASE)
    )


def test_packages_of_the_service_and_of_the_search_have_licenses_up_to_mpl() -> None:
    licenses = {
        name: license_of(metadata) for name, metadata in required("bifocal-vse", SERVED).items()
    }
    assert {"faiss-cpu", "fastapi", "granian", "numpy", "onnxruntime"} <= set(licenses)
    assert [name for name, license_name in licenses.items() if license_name is None] == []
    assert [name for name, license_name in licenses.items() if is_stronger(str(license_name))] == []


def test_stronger_licenses_of_other_packages_are_the_documented_ones() -> None:
    packages = required(
        "bifocal-vse", ("train", "pipelines", "transformers", "spark", "clip", "heic", "proposals")
    )
    stronger = {
        name: str(license_of(metadata))
        for name, metadata in packages.items()
        if is_stronger(str(license_of(metadata))) and not name.startswith(("nvidia-", "cuda-"))
    }
    documented = (ROOT / "SECURITY.md").read_text()
    assert sorted(stronger) == list(EXCEPTIONS)
    assert all(f"`{name}`" in documented for name in stronger)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"License-Expression": "MIT", "License": "other"}, "MIT"),
        (
            {"Classifier": "License :: OSI Approved :: MIT License", "License": "MIT\nfull text"},
            "MIT License",
        ),
        ({"License": "BSD 3-Clause"}, "BSD 3-Clause"),
        ({"License": "Permission is hereby granted\n" * 9}, None),
        ({}, None),
    ],
)
def test_the_field_that_names_the_license(fields: dict[str, str], expected: str | None) -> None:
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value
    assert license_of(metadata) == expected
