"""Environment of git and DVC for repositories with a login."""

import os
from pathlib import Path

CONFIG = Path(__file__).with_name("login.config")


def git_environment() -> dict[str, str]:
    """Return the environment for git and DVC: no prompts, and the login of ``BIFOCAL_GIT_PASSWORD`` if that is set.

    ``BIFOCAL_GIT_PASSWORD`` is a password or an access token, ``BIFOCAL_GIT_USERNAME`` its user, by default "git". A
    file of git's configuration passes them on: DVC clones by dulwich, which ignores ``GIT_CONFIG_COUNT``.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if environment.get("BIFOCAL_GIT_PASSWORD"):
        environment["GIT_CONFIG_GLOBAL"] = str(CONFIG)
        environment["BIFOCAL_GIT_USERNAME"] = environment.get("BIFOCAL_GIT_USERNAME") or "git"
    return environment
