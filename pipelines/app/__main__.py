"""``python -m pipelines.app``: the command ``bifocal`` where it is not installed, such as in an image."""

from pipelines.app import main

main()
