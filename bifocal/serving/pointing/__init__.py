"""The pointing head of a backbone: where a phrase is in an image, and whether, without training and without torch."""

from bifocal.serving.pointing.contrastive import ContrastivePointer
from bifocal.serving.pointing.head import ACCURATE, FOLDER, Place, PointingHead
from bifocal.serving.pointing.pointer import Pointer, open_pointer
