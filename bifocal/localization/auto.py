"""The localizer of the encoder's own paper."""

from typing import Any

from bifocal.localization.base import Localizer


class AutoLocalizer:
    """Choose the localizer that belongs to the encoder, see ``bifocal.image_encoders.base.ImageEncoder.localizer``."""

    def for_model(self, model: Any) -> Localizer | None:
        """Return the localizer of the model's image encoder; None if it has none."""
        localizer: Localizer | None = model.image_encoder.localizer()
        return localizer and localizer.for_model(model)
