"""Parameters: ``params.yaml``, overlaid by recipes and ``--set``, checked before any work starts."""

from runtime.parameters.validation import nested_models, validate
from runtime.parameters.values import ParameterError, load, merge, overlay, with_settings
