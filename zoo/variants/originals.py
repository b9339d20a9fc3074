"""The five from-scratch Transformers that the zoo began with; what was wrong with them are their quirks."""

from zoo.registry import Quirk, register

from .seq2seq import seq2seq

PADDING_IS_ATTENDED = "Padding takes part in attention like any other token; a padding mask is not read."

register(
    "vanilla",
    "Post-norm encoder-decoder with learned positions and scaled embeddings, and a max-pooling classifier.",
    tasks=("seq2seq-lm", "sequence-classification", "feature-extraction"),
    source="github.com/arxyzan/vanilla-transformer, as described in the notebook 'Passo a passo de Transformadores'",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("original", "encoder-decoder", "post-norm"),
    defaults={
        "initializer_range": 0.02,
        "norm_placement": "post",
        "position": "learned",
        "hidden_act": "relu",
        "scale_embedding": True,
        "lm_head_bias": True,
        "classifier_pooling": "max",
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "initializer": "xavier-uniform",
        "keep_dead": False,
    },
    quirks={
        "scores-scaled-by-model-width": Quirk(
            "Attention scores are divided by sqrt(hidden_size) instead of sqrt(head_dim).",
            overrides={"attention_scale": "hidden-size"},
        ),
        "cross-attention-reuses-self": "Cross attention runs with the weights of self-attention; its own stay unused.",
        "feed-forward-reuses-cross-norm": "The norm after cross attention serves again after the feed-forward network.",
        "dropout-on-the-skip": "In the encoder, dropout falls on the residual stream instead of on the branch.",
        "masked-rows-are-uniform": Quirk(
            "A query without any visible key attends to all keys alike, later ones included.",
            overrides={"attention": "masked-rows-uniform"},
        ),
        "masks-from-token-ids": Quirk(
            "Where no mask is given, every token equal to pad_token_id is masked. No cache: it would forget.",
            overrides={"use_cache": False},
        ),
        "max-pools-padding": "The classifier takes its maximum over padding, too.",
        "torch-initialization": Quirk(
            "Weights start as PyTorch's modules do: standard normal embeddings, then scaled up by sqrt(hidden_size).",
            overrides={"initializer": "torch", "initializer_range": 1.0},
        ),
    },
    limits=(
        "The weights that cross-attention-reuses-self and feed-forward-reuses-cross-norm leave unused are not built, "
        "unless keep_dead=True.",
        "In training the original's classifier drops elements before it takes the maximum, this one after.",
    ),
    builder="zoo.variants.builders.vanilla:vanilla",
)

seq2seq(
    "d2l-style",
    "Post-norm encoder-decoder with sinusoidal positions and without attention biases, as the chapter builds it.",
    source="Dive into Deep Learning (Zhang et al.), chapter Transformer",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("original", "encoder-decoder", "post-norm"),
    defaults={
        "initializer_range": 0.02,
        "norm_placement": "post",
        "position": "sinusoidal",
        "hidden_act": "relu",
        "attention_bias": False,
        "encoder_attention_bias": False,
        "scale_embedding": True,
        "lm_head_bias": True,
        "attention_dropout": 0.1,
        "initializer": "xavier-uniform",
    },
    quirks={
        "evaluation-sees-the-future": "Decoder self-attention is causal in training mode only. In evaluation mode a "
        "whole target sees its later tokens; in training mode masks are unread and a cache is seen from its start.",
        "every-step-is-position-zero": "Every call of the decoder counts positions from 0, so in stepwise decoding "
        "every generated token has position 0.",
        "masked-rows-are-uniform": Quirk(
            "A query without any visible key attends to all keys alike.",
            overrides={"attention": "masked-rows-uniform"},  # defined with vanilla, which does the same
        ),
        "table-ends-at-1000": "No sequence may be longer than 1000 tokens.",
        "unscaled-initialization": Quirk(
            "Embeddings start standard normal although they are scaled up by sqrt(hidden_size).",
            overrides={"initializer": "d2l"},
        ),
    },
    builder="zoo.variants.builders.d2l:d2l_style",
)

register(
    "nlpt-encoder",
    "Pre-norm encoder without a final norm, with learned positions and a norm on the embeddings, read at [CLS].",
    tasks=("sequence-classification", "feature-extraction", "masked-lm", "token-classification"),
    source="Natural Language Processing with Transformers (Tunstall et al. 2022), chapter 3",
    paper="Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
    tags=("original", "encoder", "pre-norm"),
    defaults={
        "initializer_range": 0.02,
        "norm_placement": "pre",
        "final_norm": False,
        "position": "learned",
        "hidden_act": "gelu",
        "embedding_norm": True,
        "embedding_norm_eps": 1e-12,
        "lm_head_bias": True,
        "classifier_pooling": "cls",
    },
    quirks={
        "padding-is-attended": PADDING_IS_ATTENDED,
        "torch-initialization": Quirk(
            "Weights start as PyTorch's modules do.", overrides={"initializer": "torch", "initializer_range": 1.0}
        ),
        "masked-rows-are-nan": "Masked scores are minus infinity: a row without any visible key becomes NaN.",
    },
    builder="zoo.variants.builders.nlpt:nlpt_encoder",
)

seq2seq(
    "odom-style",
    "Post-norm encoder-decoder with sinusoidal positions, biases everywhere and a head with a bias.",
    source="Frank Odom, Transformers from Scratch in PyTorch (2021), as retold in a notebook",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("original", "encoder-decoder", "post-norm"),
    defaults={
        "initializer_range": 0.02,
        "norm_placement": "post",
        "position": "sinusoidal",
        "hidden_act": "relu",
        "lm_head_bias": True,
        "scale_embedding": True,
        "initializer": "xavier-uniform",
    },
    quirks={
        "heads-share-weights": "All heads of an attention are one module, so they are equal.",
        "layers-share-weights": Quirk("All layers of a stack are one module.", overrides={"share_layers": True}),
        "softmax-over-the-batch": "Attention weights of a query and a key sum to 1 over the batch instead of the keys.",
        "decoder-sees-the-future": "Decoder self-attention has no causal mask.",
        "padding-is-attended": PADDING_IS_ATTENDED,
        "cosines-have-own-exponents": "Odd columns of the position table use exponent j/d instead of (j-1)/d.",
        "changes-its-inputs": "Positions are added to the caller's embeddings in place.",
        "works-on-features": Quirk(
            "It has no vocabulary: inputs_embeds and decoder_inputs_embeds go in, and the head maps features to "
            "features. Logits are the values before the final softmax.",
            generates=False,
        ),
        "torch-initialization": Quirk("Weights start as PyTorch's modules do.", overrides={"initializer": "torch"}),
    },
    limits=(
        "With changes-its-inputs, one tensor given as both inputs gets the positions added one after the other, not "
        "twice before the encoder runs.",
        "With works-on-features it cannot be trained on token ids, so not by `zoo train` or `zoo compare`.",
    ),
    builder="zoo.variants.builders.odom:odom_style",
)

seq2seq(
    "explicando",
    "Post-norm encoder-decoder with one embedding for both sides, sinusoidal positions and no dropout.",
    source="'Explicando Transformers', a tutorial in Portuguese",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("original", "encoder-decoder", "post-norm", "characters"),
    defaults={
        "norm_placement": "post",
        "position": "sinusoidal",
        "hidden_act": "relu",
        "attention_bias": False,
        "share_encoder_decoder_embeddings": True,
        "lm_head_bias": True,
        "dropout": 0.0,
        "input_characters": None,
        "output_characters": None,
        "initializer": "xavier-uniform",
        "initializer_range": 1.0,  # of the embeddings, which are not scaled up
    },
    quirks={
        "memory-makes-queries": Quirk(
            "Cross attention takes queries and keys from the encoder and values from the decoder, with the residual on "
            "the values; both must have one length, a token sees later ones, and nothing can be generated stepwise.",
            generates=False,
            one_length=True,
        ),
        "self-attention-stands-bare": "Decoder self-attention has neither a residual connection nor a norm.",
        "decoder-reads-the-source": Quirk(
            "Where no decoder input is given, it is the source, not shifted.", one_length=True
        ),
        "padding-is-attended": PADDING_IS_ATTENDED,
        "embedding-never-learns": "Embeddings are looked up where no gradient is recorded.",
        "torch-initialization": Quirk("Weights start as PyTorch's modules do.", overrides={"initializer": "torch"}),
    },
    limits=(
        "With memory-makes-queries or decoder-reads-the-source, it can be trained only where every source and its "
        "target are of one length.",
    ),
    builder="zoo.variants.builders.explicando:explicando",
)
