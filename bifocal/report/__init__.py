"""Report of an evaluation: generic sections rendered as one HTML page, matplotlib figures, and the
model card."""
