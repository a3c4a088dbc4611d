"""Stage ``prepare_dataset``: from a corpus to the tables of a dataset."""
