"""Hook that a caller of a training sets to copy its checkpoints, such as to a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class CheckpointHook(Protocol):
    """Called on rank 0 after each checkpoint, between two steps: no checkpoint file changes during the call."""

    def __call__(self, *, is_last: bool) -> None:
        """Handle a new checkpoint; ``is_last``: the process exits after it, because SIGTERM arrived."""


_hook: ContextVar[CheckpointHook | None] = ContextVar("checkpoint_hook", default=None)


@contextmanager
def checkpoint_hook(hook: CheckpointHook) -> Iterator[None]:
    """Call ``hook`` after each checkpoint of each training in this context."""
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)


def call_checkpoint_hook(*, is_last: bool) -> None:
    """Call the hook of the current context, if there is one."""
    hook = _hook.get()
    if hook is not None:
        hook(is_last=is_last)
