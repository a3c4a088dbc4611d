"""Train on several machines: the step that stands for train_embedding where it has more than one node."""
