"""Pretrained transformers of text; ``folder`` and ``tokenizer`` load without torch."""
