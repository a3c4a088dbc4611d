"""The localizer of the encoder's own paper."""

from typing import Any

from bifocal.localization.base import Localizer


class AutoLocalizer:
    """Choose the localizer that belongs to the encoder, see ``bifocal.image_encoders.base.ImageEncoder.localizer``."""

    def for_encoder(self, encoder: Any) -> Localizer | None:
        """Return the encoder's own localizer; None if it has none."""
        localizer: Localizer | None = encoder.localizer()
        return localizer
