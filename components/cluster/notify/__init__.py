"""Step notify: message about a failed run."""
