"""ONNX graphs of trained models, each compared with torch."""
