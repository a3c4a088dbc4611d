"""The search service, its page and static copy, and the canary of two services: thin over
``search``."""
