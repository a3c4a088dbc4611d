"""Word vectors: the table, published file formats, WordNet lemmas."""
