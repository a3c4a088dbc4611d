"""A transformer with random weights, for examples and tests that download nothing."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import torch

from bifocal.onnx.text.captions import tokenize
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.text.transformer.folder import CONFIG, MODULES

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
MAX_TOKENS = 24


def write_tiny_transformer(
    sentences: Sequence[str],
    dim: int = 16,
    layers: int = 2,
    seed: int = 0,
    folder: Path | None = None,
) -> Path:
    """Write a BERT of random weights and 2 heads, whose vocabulary is the sentences' words; return
    its folder."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    words = sorted({word for sentence in sentences for word in tokenize(sentence)})
    ids = {word: number for number, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing((SPECIAL[3], 3), (SPECIAL[2], 2))
    config = BertConfig(
        vocab_size=len(ids),
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * dim,
        max_position_embeddings=MAX_TOKENS,
        # Larger than usual: with 0.02, all sentences have nearly the same vector.
        initializer_range=0.3,
    )
    folder = Path(mkdtemp()) if folder is None else folder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder)
    tokenizer.save(str(folder / TOKENIZER))
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    entries = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in modules.items()
    ]
    (folder / MODULES).write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / CONFIG).write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder
