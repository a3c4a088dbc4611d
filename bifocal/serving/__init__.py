"""The search service, its page, and the canary of two services: thin over ``search``."""
