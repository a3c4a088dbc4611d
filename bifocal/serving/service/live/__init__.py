"""The model in use: where it is loaded from, its items, and its replacement while requests are answered."""
