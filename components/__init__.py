"""The stages: one folder each, ``spec.py`` says what goes in and out, ``run.py`` how."""
