"""Promote a registered version if it is better than the champion."""
