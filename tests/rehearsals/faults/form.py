"""Long or short form of the faults."""

import os

VARIABLE = "BIFOCAL_FAULTS"
LONG = os.environ.get(VARIABLE) == "long"
"""Whether ``python -m tests.rehearsals.faults`` runs: 'make test-slow' takes only a part of the
faults."""
