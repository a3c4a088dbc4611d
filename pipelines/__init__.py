"""The graph: stages in order, rendered for DVC and compiled for Kubeflow."""
