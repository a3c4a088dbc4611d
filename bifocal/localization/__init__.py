"""From embedding to heatmap or region."""

__all__: list[str] = []
