"""Delete what nothing needs any more."""
