"""Places of clients: their hash decides which release answers them."""

import hashlib
from dataclasses import dataclass

from bifocal.serving.canary.counts import GROUPS


@dataclass(frozen=True)
class Place:
    """Place of a client among all clients."""

    position: float  # in [0, 1), uniform and independent of the group
    group: int  # of clients, for confidence intervals

    @classmethod
    def of(cls, client: str, salt: str) -> "Place":
        """Return the place of a client; another salt gives other places.

        Example:
            >>> Place.of("a", "x") == Place.of("a", "x"), Place.of("a", "x") == Place.of("a", "y")
            (True, False)
        """
        digest = hashlib.sha256(f"{salt}\0{client}".encode("utf-8", "replace")).digest()
        return cls(int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) % GROUPS)

    def is_within(self, share: float) -> bool:
        """Return whether the client belongs to a share of all clients. A larger share contains a smaller one."""
        return self.position < share
