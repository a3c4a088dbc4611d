"""The pipeline of all stages: rendered for DVC, compiled for Kubeflow, run on this machine,
promoted in MLflow."""
