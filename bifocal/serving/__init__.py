"""Serve an exported model with onnxruntime: no module of this package imports torch."""
