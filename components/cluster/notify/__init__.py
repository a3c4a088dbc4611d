"""Last of all on a cluster, whatever happened: tell somebody of a failure."""
