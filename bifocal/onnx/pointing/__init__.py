"""The pointing head of a backbone: where a phrase is in an image, and whether, without training and
without torch."""

from bifocal.onnx.pointing.head import ACCURATE, FOLDER, LIKELY, Place, PointingHead
from bifocal.onnx.pointing.pointer import Pointer, open_pointer
