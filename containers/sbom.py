"""Write the software bill of materials of an image, in CycloneDX 1.6: its Debian and Python
packages.

    python containers/sbom.py localhost/bifocal:cpu --engine podman --output images.cpu.cdx.json

The packages are read inside a container of the image, so the list describes the image and not the
files that it was built from. ``containers/build.py`` writes one for every image.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

# Runs in the image. A Debian package may have an epoch in its version, but no tab.
LICENSES = Path(__file__).with_name("licenses.py").read_text(encoding="utf-8")
INVENTORY = (
    LICENSES
    + r"""
import json, subprocess
from importlib.metadata import distributions
python = [[d.metadata["Name"], d.version, license_of(d.metadata)] for d in distributions()]
query = ["dpkg-query", "--show", "--showformat", r"${Package}\t${Version}\t${Architecture}\n"]
debian = [line.split("\t") for line in subprocess.check_output(query, text=True).splitlines()]
print(json.dumps({"python": sorted(python, key=str), "debian": sorted(debian)}))
"""
)


def main() -> None:
    """Write the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("image", help="name or digest of an image on this machine")
    parser.add_argument("--engine", required=True, help="podman, buildah or docker")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    text = bill_of_materials(options.image, read_packages(options.engine, options.image))
    options.output.write_text(text + "\n")


def read_packages(engine: str, image: str) -> dict[str, Any]:
    """Return ``{"python": [[name, version, license]], "debian": [[name, version, architecture]]}``
    of an image."""
    program = ("python", "-c", INVENTORY)
    if engine != "buildah":
        return read_json(engine, "run", "--rm", "--network", "none", image, *program)
    container = call("buildah", "from", image).strip()
    try:
        return read_json("buildah", "run", container, "--", *program)
    finally:
        call("buildah", "rm", container)


def bill_of_materials(image: str, packages: dict[str, Any]) -> str:
    """Return the CycloneDX document of an image as JSON."""
    licenses = LicenseFactory()
    bom = Bom()
    bom.metadata.component = Component(name=image, type=ComponentType.CONTAINER, bom_ref=image)
    for name, version, license_name in packages["python"]:
        url = PackageURL("pypi", name=name, version=version)
        known = [licenses.make_from_string(license_name)] if license_name else []
        bom.components.add(_library(url, known))
    for name, version, architecture in packages["debian"]:
        bom.components.add(
            _library(PackageURL("deb", "debian", name, version, {"arch": architecture}), [])
        )
    bom.register_dependency(bom.metadata.component, bom.components)
    text: str = JsonV1Dot6(bom).output_as_string(indent=1)
    return text


def _library(url: PackageURL, licenses: list[Any]) -> Component:
    text = url.to_string()
    return Component(
        name=url.name,
        version=url.version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=text,
        licenses=licenses,
    )


def read_json(*command: str) -> dict[str, Any]:
    """Run ``command`` and return its output, which is JSON."""
    document: dict[str, Any] = json.loads(call(*command))
    return document


def call(*command: str) -> str:
    """Run ``command`` and return its output.

    Raises:
        ValueError: the command failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(
            f"'{' '.join(command[:3])} ...' failed with exit code {done.returncode}: "
            f"{done.stderr.strip()}"
        )
    return done.stdout


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
