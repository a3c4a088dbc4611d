"""Visual-semantic embeddings: images and sentences in one space, where closeness is meaning."""
