"""What an exported model can do, with onnxruntime and without torch: encode images and texts, and
point at phrases."""
