"""Word vectors: the table of vectors, published file formats, WordNet lemmas."""
