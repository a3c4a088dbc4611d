"""ELMo: the network and its published file format."""

from bifocal.text.elmo.network import Elmo
