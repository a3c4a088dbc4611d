"""How any stage runs: declaration, parameters, artifacts, command line, S3, MLflow, Kubeflow's
executor protocol."""
