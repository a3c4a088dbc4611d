"""Stage prepare_dataset: the tables of a dataset from a corpus."""
