"""Another user, whom the modes of files concern."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def other_user() -> Iterator[None]:
    """Act as a user without rights of root; a test that is not run as root acts as itself."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
