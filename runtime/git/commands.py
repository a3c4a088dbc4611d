"""Commands of git and DVC for repositories with a login."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

CONFIG = Path(__file__).with_name("login.config")


def git_environment() -> dict[str, str]:
    """Return the environment for git and DVC: no prompts, and the login of ``BIFOCAL_GIT_PASSWORD`` in a file of git's
    configuration, because DVC's dulwich ignores ``GIT_CONFIG_COUNT``.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if environment.get("BIFOCAL_GIT_PASSWORD"):
        environment["GIT_CONFIG_GLOBAL"] = str(CONFIG)
        environment["BIFOCAL_GIT_USERNAME"] = environment.get("BIFOCAL_GIT_USERNAME") or "git"
    return environment


def call(*command: str, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return a command's output, or raise ``ValueError``; the process environment overrides ``environment``."""
    process = subprocess.run(
        command,
        cwd=folder,
        env={**(environment or {}), **git_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise ValueError(f"{' '.join(command)!r} failed: {(process.stderr or process.stdout).strip()}")
    return process.stdout
