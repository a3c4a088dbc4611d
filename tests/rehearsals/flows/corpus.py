"""The corpus of the schedules, and the tasks that a run did not repeat."""

from pipelines.local.task import TaskState
from tests.flickr8k_bucket import ADDRESS

CORPUS = {"name": "Flickr8k", "root": ADDRESS}


def cached(states: dict[str, TaskState]) -> set[str]:
    return {name for name, state in states.items() if state is TaskState.CACHED}
