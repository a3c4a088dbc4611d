"""ONNX graphs of trained networks, and their comparison with torch."""
