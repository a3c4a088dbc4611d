"""Text encoders on pretrained language models: mixtures of contextual vectors, ELMo,
transformers."""
