"""Promotion of a registered version that is better than the champion."""
