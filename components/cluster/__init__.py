"""Steps that only a cluster runs; they have no section in ``params.yaml``."""
