"""Version of the package, and the command that adds its extras."""

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

__version__ = "0.3.0"
DISTRIBUTION = "bifocal-vse"


def install(*extras: str) -> str:
    """Return the command that adds extras from where the package came, a clone or a wheel: it is on
    no package index.
    """
    named = ",".join(extras)
    source = _source()
    if source is None:
        return f"install the extras {named} of the clone or wheel that this package came from"
    path = "." if source == Path.cwd() else str(source)
    return f"pip install {shlex.quote(f'{path}[{named}]')}"


def _source() -> Path | None:
    """Return the clone or the wheel that is installed; None if it is no longer there."""
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
    except PackageNotFoundError:
        return None
    parts = urlsplit(json.loads(text).get("url", ""))
    source = Path(unquote(parts.path))
    return source if parts.scheme == "file" and source.exists() else None
