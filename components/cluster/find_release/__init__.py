"""Find the release of the champion."""
