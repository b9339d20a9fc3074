"""Names of other libraries and of papers for what the zoo has, for suggestions.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable

FIELDS = {
    "hidden_size": ("d_model", "n_embd", "embed_dim", "model_dim", "dim", "width", "num_hiddens"),
    "embedding_size": ("word_embed_proj_dim", "d_embed"),
    "num_hidden_layers": ("num_layers", "n_layer", "n_layers", "depth", "layers", "num_blks", "num_blocks"),
    "num_attention_heads": ("n_head", "n_heads", "nhead", "num_heads", "heads"),
    "num_key_value_heads": ("n_kv_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("d_head", "dim_head", "d_k", "d_kv"),
    "intermediate_size": ("d_ff", "n_inner", "ffn_dim", "dim_feedforward", "ffn_num_hiddens", "d_hidden"),
    "max_position_embeddings": (
        *("n_positions", "n_ctx", "block_size", "max_len", "max_length", "max_seq_len", "seq_len"),
    ),
    "hidden_act": ("activation", "act", "activation_function"),
    "dropout": ("p_drop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop", "drop_rate"),
    "attention_dropout": ("attn_dropout", "attn_pdrop", "attention_probs_dropout_prob"),
    "layer_norm_eps": ("norm_eps", "epsilon", "layer_norm_epsilon"),
    "norm": ("norm_type", "normalization", "norm_layer"),
    "norm_placement": ("norm_first", "norm_position", "pre_norm", "post_norm"),
    "position": ("position_embedding_type", "pos_emb", "positional_encoding", "position_encoding"),
    "vocab_size": ("n_vocab", "num_tokens", "src_vocab_size", "input_vocab_size"),
    "decoder_vocab_size": ("tgt_vocab_size", "target_vocab_size", "trg_vocab_size"),
    "decoder_layers": ("num_decoder_layers",),
    "tie_word_embeddings": ("tie_weights", "tied", "weight_tying"),
    "attention_bias": ("qkv_bias", "bias", "use_bias"),
    "num_labels": ("num_classes", "n_classes"),
    "initializer_range": ("init_std",),
}
"""Names of other libraries for fields of the configuration."""

ARGUMENTS = {
    "learning_rate": ("lr", "max_lr"),
    "num_train_epochs": ("epochs", "num_epochs", "n_epochs", "max_epochs"),
    "max_steps": ("steps", "num_steps", "train_steps", "num_train_steps", "max_iters", "total_steps"),
    "per_device_train_batch_size": ("batch_size", "train_batch_size", "bs"),
    "gradient_accumulation_steps": ("grad_accum", "accumulate_grad_batches", "accumulation_steps"),
    "warmup_steps": ("warmup", "num_warmup_steps", "warmup_iters"),
    "lr_scheduler_type": ("scheduler", "lr_scheduler", "schedule", "lr_schedule"),
    "weight_decay": ("wd",),
    "max_grad_norm": ("clip", "grad_clip", "gradient_clip_val", "clip_grad"),
    "label_smoothing_factor": ("label_smoothing", "smoothing"),
    "optim": ("optimizer", "optimiser"),
    "early_stopping_patience": ("patience",),
}
"""Names of other libraries for transformers' training arguments."""

LENGTHS = ("max_new_tokens", "max_length")
"""Options of generation that set the length of an output; one that is given replaces the other."""

TASKS = {
    "language-modeling": ("causal-lm", "clm", "lm", "text-generation", "causal-language-modeling"),
    "masked-language-modeling": ("masked-lm", "mlm", "fill-mask"),
    "span-corruption": ("denoising", "span-masking", "span-denoising"),
    "translation": ("seq2seq-lm", "seq2seq", "text2text-generation", "machine-translation"),
    "text-classification": ("sequence-classification", "classification", "sentiment-analysis"),
    "token-classification": ("ner", "named-entity-recognition", "pos"),
    "causal-lm": ("language-modeling", "clm", "lm", "text-generation"),
    "masked-lm": ("masked-language-modeling", "mlm", "fill-mask"),
    "seq2seq-lm": ("translation", "seq2seq", "text2text-generation"),
    "sequence-classification": ("text-classification", "classification", "sentiment-analysis"),
}
"""Other names of tasks of training and of models."""


def translate(given: str, valid: Iterable[str]) -> str | None:
    """Translate a name of another library."""
    known, names = set(valid), {**FIELDS, **ARGUMENTS, **TASKS}
    return next((name for name, others in names.items() if given in others and name in known), None)
