"""Export a trained model to ONNX."""
