"""Stage vectorize_captions: captions as token ids, vectors or bags of words."""
