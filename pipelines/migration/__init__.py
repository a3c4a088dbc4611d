"""Parameters of an earlier version, rewritten for this one: ``table`` has the changes, ``migrate`` applies them."""
