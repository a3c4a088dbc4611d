"""Promote the registered model if it is better than the champion."""
