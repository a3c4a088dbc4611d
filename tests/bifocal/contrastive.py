"""Small contrastive models of random weights, and their folders as open_clip writes them for a
hub."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

SMALL = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 16, "layers": 2, "head_width": 8},
    "text_cfg": {"context_length": 16, "width": 16, "heads": 2, "layers": 1},
}
"""Arguments of open_clip's model."""
LANGUAGES = [
    "ein Hund rennt durch den Schnee",
    "zwei Kinder im Sommer",
    "犬が雪の中を走る",
    "二人の子供と海",
]
"""Sentences in German and Japanese that train a tokenizer."""


def write_clip(folder: Path) -> Path:
    """Write a model with CLIP's tokenizer and preprocessing; return the folder."""
    import open_clip
    from transformers import PreTrainedTokenizerFast

    from bifocal.text.transformer.clip_bpe import clip_tokenizer

    simple = open_clip.get_tokenizer("ViT-B-32")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=clip_tokenizer(simple, 16), pad_token="<end_of_text>"
    )
    return _write(
        folder,
        {**SMALL, "text_cfg": {**SMALL["text_cfg"], "vocab_size": simple.vocab_size}},
        fast,
        {},
    )


def write_multilingual(folder: Path, sentences: Sequence[str] = LANGUAGES) -> Path:
    """Write a model with pieces of words of several languages, and SigLIP's preprocessing; return
    the folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="right",
    )
    text = {
        "hf_tokenizer_name": "tiny",
        "tokenizer_kwargs": {"clean": "canonicalize"},
        "vocab_size": len(fast),
        "no_causal_mask": True,
        "pool_type": "last",
    }
    preprocessing = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "resize_mode": "squash"}
    config = {**SMALL, "custom_text": True, "text_cfg": {**SMALL["text_cfg"], **text}}
    return _write(folder, config, fast, preprocessing)


def _write(
    folder: Path, config: dict[str, Any], tokenizer: Any, preprocessing: dict[str, Any]
) -> Path:
    import open_clip
    from open_clip.push_to_hf_hub import save_for_hf

    tokenizer.save_pretrained(folder)
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": preprocessing})
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.create_model(f"local-dir:{folder}")
    save_for_hf(
        model, open_clip.tokenizer.HFTokenizer(str(folder)), config, folder, safe_serialization=True
    )
    return folder
