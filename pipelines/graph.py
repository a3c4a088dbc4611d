"""The default line: stages in order, each reading what those before it wrote."""

from components.evaluate.spec import COMPONENT as EVALUATE
from components.export_onnx.spec import COMPONENT as EXPORT_ONNX
from components.extract_features.spec import COMPONENT as EXTRACT_FEATURES
from components.prepare_dataset.spec import COMPONENT as PREPARE_DATASET
from components.pretrain_sorter.spec import COMPONENT as PRETRAIN_SORTER
from components.register_model.spec import COMPONENT as REGISTER_MODEL
from components.train_embedding.spec import COMPONENT as TRAIN_EMBEDDING
from components.vectorize_captions.spec import COMPONENT as VECTORIZE_CAPTIONS

STAGES = (
    PREPARE_DATASET,
    EXTRACT_FEATURES,
    VECTORIZE_CAPTIONS,
    PRETRAIN_SORTER,
    TRAIN_EMBEDDING,
    EVALUATE,
    EXPORT_ONNX,
    REGISTER_MODEL,
)
