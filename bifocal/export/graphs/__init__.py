"""How one ONNX graph is written: in a process of its own, compared with torch, quantized."""
