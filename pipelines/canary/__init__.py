"""Decision on a release that answers a share of the clients, or repeats their searches."""
