"""How one ONNX graph is written: in a process of its own, compared with torch, quantized."""

IR_VERSION = 9
"""Version of the format of all graphs: the newest that ONNX Runtime 1.17 reads."""
