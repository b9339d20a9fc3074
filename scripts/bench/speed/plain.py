"""Peers without a library's model code, made from the weights of a native model so that results can be compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN


def stacked(*projections: nn.Linear) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights and biases of several projections as one."""
    return (
        nn.Parameter(torch.cat([projection.weight.detach() for projection in projections])),
        nn.Parameter(torch.cat([projection.bias.detach() for projection in projections])),
    )


class TorchEncoder(nn.Module):
    """A BERT with the layers of PyTorch's `nn.TransformerEncoder`, and the head of a classifier."""

    def __init__(self, bert: Any, classifier: Any = None) -> None:
        super().__init__()
        config = bert.config
        layer = nn.TransformerEncoderLayer(
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            dropout=config.hidden_dropout_prob,
            activation="gelu",
            layer_norm_eps=config.layer_norm_eps,
            batch_first=True,
        )
        self.embeddings = bert.embeddings
        self.encoder = nn.TransformerEncoder(layer, config.num_hidden_layers)
        for ours, theirs in zip(self.encoder.layers, bert.encoder.layer, strict=True):
            attention = theirs.attention
            ours.self_attn.in_proj_weight, ours.self_attn.in_proj_bias = stacked(
                attention.self.query, attention.self.key, attention.self.value
            )
            ours.self_attn.out_proj.load_state_dict(attention.output.dense.state_dict())
            ours.linear1.load_state_dict(theirs.intermediate.dense.state_dict())
            ours.linear2.load_state_dict(theirs.output.dense.state_dict())
            ours.norm1.load_state_dict(attention.output.LayerNorm.state_dict())
            ours.norm2.load_state_dict(theirs.output.LayerNorm.state_dict())
            ours.dropout.p = 0.0  # inside of the feed-forward network, where BERT has none
        self.head = (
            None if classifier is None else nn.Sequential(bert.pooler, classifier.dropout, classifier.classifier)
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        padding = None if attention_mask is None else attention_mask == 0
        hidden_states = self.encoder(self.embeddings(input_ids), src_key_padding_mask=padding)
        if self.head is None or labels is None:
            return hidden_states
        return F.cross_entropy(self.head(hidden_states), labels)


class PlainEncoder(nn.Module):
    """A BERT written the way textbooks do: attention a head at a time, masks added."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.bert = bert
        self.heads = bert.config.num_attention_heads

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        hidden_states = self.bert.embeddings(input_ids)
        for layer in self.bert.encoder.layer:
            attention = layer.attention
            projections = (attention.self.query, attention.self.key, attention.self.value)
            split = [projection(hidden_states).chunk(self.heads, dim=-1) for projection in projections]
            mixed = []
            for query, key, value in zip(*split, strict=True):
                scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
                if attention_mask is not None:
                    scores = scores.masked_fill(attention_mask[:, None] == 0, float("-inf"))
                mixed.append(scores.softmax(dim=-1) @ value)
            hidden_states = attention.output(torch.cat(mixed, dim=-1), hidden_states)
            hidden_states = layer.output(layer.intermediate(hidden_states), hidden_states)
        return hidden_states


class PlainDecoder(nn.Module):
    """A GPT-2 as a training script writes it: one projection for queries, keys and values, fused attention."""

    def __init__(self, gpt2: Any) -> None:
        super().__init__()
        self.body = gpt2.transformer
        self.heads = gpt2.config.n_head
        self.attention_dropout = gpt2.config.attn_pdrop

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        body = self.body
        dropout = self.attention_dropout if self.training else 0.0
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden_states = body.drop(body.wte(input_ids) + body.wpe(positions))
        for block in body.h:
            projected = block.attn.c_attn(block.ln_1(hidden_states)).chunk(3, dim=-1)
            query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in projected)
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
            branch = block.attn.c_proj(mixed.transpose(1, 2).flatten(2))
            hidden_states = hidden_states + block.attn.resid_dropout(branch)
            hidden_states = hidden_states + block.mlp(block.ln_2(hidden_states))
        logits = F.linear(body.ln_f(hidden_states), body.wte.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())


class TorchSeq2Seq(nn.Module):
    """A Marian translator with the layers of PyTorch's `nn.Transformer`."""

    def __init__(self, marian: Any) -> None:
        super().__init__()
        config, body = marian.config, marian.model
        self.pad_token_id, self.start = config.pad_token_id, config.decoder_start_token_id
        self.embedding = body.shared
        self.positions = body.encoder.embed_positions
        self.dropout = nn.Dropout(config.dropout)
        self.bias = nn.Parameter(marian.final_logits_bias.clone(), requires_grad=False)
        self.transformer = nn.Transformer(
            config.d_model,
            config.encoder_attention_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.encoder_ffn_dim,
            dropout=config.dropout,
            activation=ACT2FN[config.activation_function],
            batch_first=True,
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        layers = zip(self.transformer.encoder.layers, body.encoder.layers, strict=True)
        for ours, theirs in layers:
            self.copy_layer(ours, theirs)
        for ours, theirs in zip(self.transformer.decoder.layers, body.decoder.layers, strict=True):
            self.copy_layer(ours, theirs)
            self.copy_attention(ours.multihead_attn, theirs.encoder_attn)
            ours.norm2.load_state_dict(theirs.encoder_attn_layer_norm.state_dict())
            ours.norm3.load_state_dict(theirs.final_layer_norm.state_dict())

    def copy_attention(self, ours: nn.MultiheadAttention, theirs: Any) -> None:
        ours.in_proj_weight, ours.in_proj_bias = stacked(theirs.q_proj, theirs.k_proj, theirs.v_proj)
        ours.out_proj.load_state_dict(theirs.out_proj.state_dict())

    def copy_layer(self, ours: Any, theirs: Any) -> None:
        """Carry over what encoder and decoder layers have in common."""
        self.copy_attention(ours.self_attn, theirs.self_attn)
        ours.dropout.p = 0.0  # inside of the feed-forward network, where Marian has none by default
        ours.linear1.load_state_dict(theirs.fc1.state_dict())
        ours.linear2.load_state_dict(theirs.fc2.state_dict())
        ours.norm1.load_state_dict(theirs.self_attn_layer_norm.state_dict())
        ours.norm2.load_state_dict(theirs.final_layer_norm.state_dict())

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) + self.positions(ids.shape))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        decoder_attention_mask: Tensor,
        labels: Tensor,
    ) -> Tensor:
        shifted = labels.roll(1, dims=1).masked_fill(labels.roll(1, dims=1) == -100, self.pad_token_id)
        shifted[:, 0] = self.start
        causal = nn.Transformer.generate_square_subsequent_mask(labels.shape[1], device=labels.device) < 0
        hidden_states = self.transformer(
            self.embed(input_ids),
            self.embed(shifted),
            tgt_mask=causal,
            src_key_padding_mask=attention_mask == 0,
            tgt_key_padding_mask=decoder_attention_mask == 0,
            memory_key_padding_mask=attention_mask == 0,
            tgt_is_causal=True,
        )
        logits = F.linear(hidden_states, self.embedding.weight) + self.bias
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
