"""Settings for editors and type checkers. Written by scripts/literals.py: do not edit.

A plugin's parts and settings are not here. They are given where a type checker looks at neither, in the name
(`zoo.build("pre-norm:position=my-rope")`) or as `**settings`, a `dict[str, Any]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from zoo.building.completion import Keywords

# fmt: off


class Settings(Keywords, total=False):
    """Fields of the configuration, and options of the built-in parts and variants."""

    vocab_size: int
    """Number of token ids; of the source, if a decoder has its own."""
    decoder_vocab_size: int | None
    """Number of target token ids."""
    type_vocab_size: int | None
    """Number of token types of an encoder (BERT's first and second sentence), None for none."""
    hidden_size: int
    """Width of the residual stream."""
    embedding_size: int | None
    """Width of the embeddings before a map onto `hidden_size` (ALBERT), None for no map."""
    num_hidden_layers: int
    """Depth of the encoder, or of the only stack."""
    decoder_layers: int | None
    """Depth of the decoder of an encoder-decoder."""
    num_attention_heads: int
    """Number of query heads."""
    decoder_attention_heads: int | None
    """Number of query heads in the decoder of an encoder-decoder."""
    num_key_value_heads: int | None
    """Number of key and value heads, `num_attention_heads` if not given; 1 is multi-query."""
    head_dim: int | None
    """Width of a head, `hidden_size / num_attention_heads` if not given."""
    intermediate_size: int
    """Inner width of the feed-forward network."""
    decoder_intermediate_size: int | None
    """Inner width in the decoder of an encoder-decoder."""
    hidden_act: str
    """Activation in the feed-forward network."""
    feed_forward: Literal[
        "gated", "mlp", "moe", "moe-clamped", "moe-shared", "moe-sigmoid", "normalized", "swiglu", "geglu", "reglu",
    ]
    """Feed-forward part; "swiglu", "geglu" and "reglu" are "gated" with that activation."""
    mlp_bias: bool
    """Whether the feed-forward projections have biases."""
    mlp_inner_norm: bool
    """Whether to normalise the inner width, after the activation (NormFormer)."""
    attention: Literal[
        "differential", "disentangled", "disentangled-gated", "disentangled-other-rows", "exclusive", "gated",
        "kv-sharing", "latent", "masked-rows-uniform", "multi-head", "normalized", "sinks", "value-embeddings",
        "value-residual",
    ]
    """Attention part."""
    mixer: Literal["attention", "gated-delta-net", "kimi-delta-attention", "short-conv"]
    """Token mixer of layers without attention, which `layer_types` names; "attention" for no such layers."""
    attention_bias: bool
    """Whether query, key and value projections have biases."""
    attention_out_bias: bool | None
    """Whether the output projection has one, `attention_bias` if not given."""
    qk_norm: Literal["head", "full", "none"] | None
    """Norm on queries and keys, None for none."""
    attention_scale: Literal["head-dim", "hidden-size", "none"] | float
    """Divisor of the scores: a word, or a number."""
    attn_logit_softcapping: float | None
    """Bound on the scores, None for none."""
    sliding_window: int | None
    """Number of positions back that a key may be, None for all."""
    norm: Literal[
        "dyt", "layernorm", "layernorm-no-affine", "layernorm-no-bias", "rmsnorm", "unit", "zero-centered-rmsnorm",
    ]
    """Norm part."""
    norm_placement: Literal["post", "pre", "sandwich", "res-post", "deepnorm", "none"]
    """Position of the norms around a sublayer."""
    layer_norm_eps: float
    """Epsilon of every norm."""
    embedding_norm_eps: float | None
    """Epsilon of the norm on the embeddings, `layer_norm_eps` if not given."""
    dyt_alpha: float
    """Initial steepness of dynamic tanh."""
    final_norm: bool | None
    """Whether a norm follows the last layer; by default only if the layers end without one (pre and sandwich)."""
    embedding_norm: bool
    """Whether a norm follows the embeddings."""
    residual: Literal[
        "attention-residuals", "depth-weighted-average", "gated-hyper-connections", "hyper-connections", "lambdas",
        "manifold-hyper-connections", "no-first-norm", "normalized", "plain",
    ]
    """Residual part."""
    residual_scaling: Literal["layer-scale", "rezero", "none"] | None
    """Learned weights in residual connections, None for none."""
    layer_scale_init: float
    """Initial value of LayerScale's weights."""
    parallel_residual: bool
    """Whether attention and feed-forward read the same input and are summed."""
    share_layers: bool
    """Whether all layers share one layer's weights."""
    position: Literal[
        "alibi", "disentangled", "learned", "learned-unpadded", "none", "rotary", "rotary-by-layer",
        "rotary-interleaved", "sinusoidal", "sinusoidal-halves", "t5",
    ]
    """Position part."""
    nope_layers: Sequence[bool] | None
    """True for layers without positions (NoPE): neither a rotation of queries and keys nor a term on their scores. One
    for every layer, or a pattern repeated over the layers; None if all have positions."""
    max_position_embeddings: int
    """Rows of a learned table; a nominal length for the other parts."""
    sinusoidal_theta: float
    """Base of the sinusoidal wavelengths."""
    relative_attention_num_buckets: int
    """Number of buckets of distances: of T5 in all, of disentangled attention on either side."""
    relative_attention_max_distance: int
    """Distance from which the last bucket holds everything."""
    scale_embedding: bool
    """Whether token embeddings are multiplied by the root of their width, sqrt(hidden_size)."""
    tie_word_embeddings: bool
    """Whether the output projection is the (target) embedding."""
    share_encoder_decoder_embeddings: bool
    """Whether source and target embeddings are shared."""
    lm_head_bias: bool
    """Whether the output projection has a bias."""
    lm_head_transform: bool
    """Whether language modelling transforms its input first (BERT: dense, act, norm), to the width of the
    embeddings."""
    lm_head_transform_act: str | None
    """Its activation, `hidden_act` if None."""
    lm_head_transform_bias: bool | None
    """Whether it has a bias, `mlp_bias` if not given."""
    masked_next_token: bool
    """Whether masked language modelling predicts a token one position earlier, as a causal model does (GPT-BERT), so
    that the same weights are a causal and a masked language model."""
    logit_scale: float
    """Factor on the logits."""
    final_logit_softcapping: float | None
    """Bound on the logits, None for none."""
    classifier_pooling: Literal["cls", "mean", "max", "last"]
    """Pooling of token vectors to one vector for a classifier."""
    classifier_pooler_act: str | None
    """Activation of a dense layer between pooling and classifier, None for no such layer."""
    classifier_positions: int | None
    """Number of positions that a classifier of sequences labels from the one vector (MAD's compression), by two dense
    layers in place of the pooler's; None for one label per sequence."""
    classifier_bias: bool
    """Whether the classifier has a bias."""
    dropout: float
    """Probability of dropping an element of the embeddings and of each residual branch."""
    attention_dropout: float
    """Probability of dropping an attention weight."""
    activation_dropout: float
    """Probability of dropping an element after the feed-forward activation."""
    classifier_dropout: float | None
    """Probability of dropping an element before a classifier, `dropout` if not given."""
    initializer: Literal[
        "d2l", "deepnorm", "depth-scaled", "layer-scaled", "mup", "normal", "t5", "torch", "xavier-uniform",
    ]
    """Initialisation part."""
    initializer_range: float | None
    """Standard deviation of normal initialisation; by default 0.02, times sqrt(initializer_width / hidden_size) in
    narrower models."""
    initializer_width: int
    """Width from which on the default of `initializer_range` is 0.02; 1 for 0.02 at every width."""
    use_cache: bool
    """Whether decoders return their keys and values."""
    pad_token_id: int | None
    """Id of padding."""
    decoder_pad_token_id: int | None
    """The same of the target, `pad_token_id` if None."""
    bos_token_id: int | None
    """Id that begins a sequence."""
    eos_token_id: int | list[int] | None
    """Id that ends a sequence."""
    decoder_start_token_id: int | None
    """Id that begins a target, `bos_token_id` if not given."""
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    norm_topk_prob: bool
    router_aux_loss_coef: float
    output_router_logits: bool
    first_k_dense_replace: int
    swiglu_alpha: float
    swiglu_limit: float
    shared_expert_intermediate_size: Any
    n_shared_experts: int
    n_group: int
    topk_group: int
    routed_scaling_factor: float
    balance_rate: float
    num_kv_shared_layers: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    v_head_dim: int
    latent_norm_eps: float | None
    value_embedding_interval: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    linear_allow_neg_eigval: bool
    linear_num_heads: int
    linear_head_dim: int
    conv_L_cache: int
    conv_bias: bool
    layers_per_block: int
    num_streams: int
    gate_rank: int
    sinkhorn_iterations: int
    hyper_eps: float
    mup_base_width: int
    """The hidden size at which parametrization=mup is the standard one, 256 if not given."""
    encoder_attention_bias: bool
    input_characters: Any
    output_characters: Any
    keep_dead: bool
    rms_norm_eps: float
    encoder_layers: int
    architectures: Any
    chunk_size_feed_forward: Any
    id2label: Any
    label2id: Any
    output_hidden_states: Any
    problem_type: Any
    return_dict: Any
    transformers_version: Any
    layer_types: Sequence[Literal["full_attention", "sliding_attention"]]
    """The kind of every layer, or a pattern repeated over them; all sliding if only a window is given, every other the
    mixer's if only that is."""
    mtp_loss_weight: float
    """Weight of their loss relative to that of the next token, 0.3 if not given."""
    num_labels: int
    """Number of labels of a classifier."""
    num_nextn_predict_layers: int
    """Number of tokens after the next one that a causal language model learns to predict, each by a layer that runs in
    training only (multi-token prediction); none if not given."""
    parametrization: Literal["standard", "mup"]
    """How initial weights, scales and learning rates depend on the width."""
    rope_parameters: dict[str, Any]
    """`rope_theta`, `rope_type` and what that type reads, as in transformers; for rotary positions."""
    sizes: Literal["follow", "fixed"]
    """Whether sizes that are not given follow hidden_size and num_attention_heads, follow if not given."""


class BuildOptions(Settings, total=False):
    """Options of [`zoo.build`][] besides settings."""

    attn_implementation: Any
    cache_dir: Any
    device_map: Any
    dtype: Any
    force_download: Any
    offline: Any
    revision: Any
    token: Any
    variant: Any


class TrainingOptions(Keywords, total=False):
    """transformers' training arguments, as [`zoo.train`][] and [`zoo.compare`][] take them."""

    per_device_train_batch_size: int
    num_train_epochs: float
    max_steps: int
    learning_rate: float
    lr_scheduler_type: Any
    lr_scheduler_kwargs: Any
    warmup_steps: float
    optim: Any
    optim_args: str | None
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    optim_target_modules: Any
    gradient_accumulation_steps: int
    average_tokens_across_devices: bool
    max_grad_norm: float
    label_smoothing_factor: float
    bf16: bool
    fp16: bool
    bf16_full_eval: bool
    fp16_full_eval: bool
    tf32: bool | None
    activation_checkpointing: bool | None
    activation_checkpointing_kwargs: Any
    gradient_checkpointing: bool | None
    gradient_checkpointing_kwargs: Any
    torch_compile: bool
    torch_compile_backend: str | None
    torch_compile_mode: str | None
    use_liger_kernel: bool
    liger_kernel_config: Any
    use_cache: bool
    neftune_noise_alpha: float | None
    torch_empty_cache_steps: int | None
    auto_find_batch_size: bool
    logging_strategy: Any
    logging_steps: float
    logging_first_step: bool
    log_on_each_node: bool
    logging_nan_inf_filter: bool
    include_num_input_tokens_seen: str | bool
    log_level: str
    log_level_replica: str
    disable_tqdm: bool | None
    report_to: Any
    run_name: str | None
    project: str
    trackio_space_id: str | None
    trackio_bucket_id: str | None
    trackio_static_space_id: Any
    eval_strategy: Any
    eval_steps: float | None
    eval_delay: float
    per_device_eval_batch_size: int
    prediction_loss_only: bool
    eval_on_start: bool
    eval_do_concat_batches: bool
    eval_use_gather_object: bool
    eval_accumulation_steps: int | None
    include_for_metrics: Any
    batch_eval_metrics: bool
    save_only_model: bool
    save_strategy: Any
    save_steps: float
    save_on_each_node: bool
    save_total_limit: int | None
    enable_jit_checkpoint: bool
    push_to_hub: bool
    hub_token: str | None
    hub_private_repo: bool | None
    hub_model_id: str | None
    hub_strategy: Any
    hub_always_push: bool
    hub_revision: str | None
    load_best_model_at_end: bool
    metric_for_best_model: str | None
    greater_is_better: bool | None
    ignore_data_skip: bool
    restore_callback_states_from_checkpoint: bool
    full_determinism: bool
    data_seed: int | None
    use_cpu: bool
    accelerator_config: Any
    parallelism_config: Any
    dataloader_drop_last: bool
    dataloader_num_workers: int
    dataloader_pin_memory: bool
    dataloader_persistent_workers: bool
    dataloader_prefetch_factor: int | None
    dataloader_multiprocessing_context: str | None
    dataloader_in_order: bool
    remove_unused_columns: bool
    label_names: Any
    train_sampling_strategy: str
    length_column_name: str
    ddp_find_unused_parameters: bool | None
    ddp_bucket_cap_mb: int | None
    ddp_broadcast_buffers: bool | None
    ddp_static_graph: bool | None
    ddp_backend: str | None
    ddp_timeout: int
    fsdp: str | None
    fsdp_config: Any
    deepspeed: Any
    debug: Any
    skip_memory_metrics: bool
    do_train: bool
    do_eval: bool
    do_predict: bool
    resume_from_checkpoint: str | None
    local_rank: int
    sortish_sampler: bool
    predict_with_generate: bool
    generation_max_length: int | None
    generation_num_beams: int | None
    generation_config: Any
    early_stopping_patience: int | None
    early_stopping_threshold: float
    decay: str
    z_loss: float
    average: str | None
    average_last: float
    average_steps: int
    average_decay: float
    checkpoint_at: str | None
    checkpoint_in: str
