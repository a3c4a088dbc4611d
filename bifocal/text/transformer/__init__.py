"""Pretrained transformers of text: their folders, their tokenizers and their networks.

``folder`` and ``tokenizer`` load without torch.
"""
