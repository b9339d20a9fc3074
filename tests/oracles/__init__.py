"""Independent oracles for the five from-scratch Transformers that the zoo reproduces.

Each module is one document's arithmetic, written out as plain functions of a bare state_dict (a dict of tensors under
the original's own key names): no modules, no fused attention, one head and one layer at a time. They know nothing of
the code under test, keep the dtype of the weights they are given, are differentiable, and apply no dropout.

| module | reproduces |
|---|---|
| vanilla | Transformer, EncoderClassifier |
| odom | Transformer |
| nlpt | TransformerEncoder, TransformerForSequenceClassification, scaled_dot_product_attention |
| d2l, d2l_text | TransformerEncoder, TransformerDecoder, EncoderDecoder; the data rules |
| explicando | Transformer, from text to text |

`ops` holds the shared arithmetic, `weights` the shared handling of state_dicts.
"""
