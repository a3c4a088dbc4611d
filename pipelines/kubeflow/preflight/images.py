"""Check of the images: fixed by digest, in a registry that nodes can reach."""

import re
from collections.abc import Iterator

from components.catalog import pipeline_components
from pipelines.kubeflow.preflight.subject import Subject

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
UNREACHABLE = re.compile(r"^(localhost|127(\.\d+){3}|\[::1\]|0\.0\.0\.0|.*\.(invalid|localhost|example|test))$", re.I)


def check_images(subject: Subject) -> Iterator[str]:
    """Yield unreachable images, and images without a digest: Kubeflow's cache would miss their changes."""
    for group in sorted({stage.image for stage in pipeline_components()}):
        image = subject.resources.images[group]
        if is_unreachable(image.partition("/")[0] if "/" in image else ""):
            yield f"{group} is {image}, which only this machine has: push it to a registry"
        elif not DIGEST.search(image):
            yield f"{group} is {image}, without a digest: pass images.json of containers/build.py by --images"


def is_unreachable(host: str) -> bool:
    """Whether no other machine can reach ``host``, or the name is reserved (RFC 6761)."""
    return bool(UNREACHABLE.match(re.sub(r":\d+$", "", host)))
