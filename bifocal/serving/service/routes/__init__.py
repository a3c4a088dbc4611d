"""HTTP routes, and the checks in front of them."""
