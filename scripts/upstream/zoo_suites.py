"""transformers' own common test suites over variants of the zoo.

A pytest module that [`run.py`](run.py) runs inside a checkout of transformers. It defines one class a variant, with the
names of the variants taken from the environment variable ZOO_SUITE_VARIANTS. Every test is transformers' own; this
module has what its suites ask of a model's author: the classes, tiny configurations and inputs.
"""

from __future__ import annotations

import os
import tempfile
import unittest
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar
from unittest import mock

from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as classes

import zoo
import zoo.models
from zoo.models.fields import LAYER_TYPES
from zoo.models.rotary import RotaryByLayerPosition

causal_lm: Any = import_module("tests.causal_lm_tester")
configuration: Any = import_module("tests.test_configuration_common")
generation: Any = import_module("tests.generation.test_utils")
modeling: Any = import_module("tests.test_modeling_common")
pipelines: Any = import_module("tests.test_pipeline_mixin")

# The suites run their multi-process tests for the model types listed there only.
for _module, _types in (
    ("tests.test_fsdp_mixin", "FSDP_DISTRIBUTED_TEST_MODEL_TYPES"),
    ("tests.test_tensor_parallel_mixin", "TP_DISTRIBUTED_TEST_MODEL_TYPES"),
):
    getattr(import_module(_module), _types).add(zoo.models.ZooConfig.model_type)

TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 512,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "initializer": "normal",  # as in transformers' own testers: the suites' tolerances are absolute
    "initializer_range": 0.02,
}

STATES: dict[str, tuple[dict[str, int], tuple[int, ...], tuple[int, ...]]] = {
    "gated-delta-net": (
        {
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 8,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 2,
        },
        (2 * 4 * 16 + 8 * 8, 2),
        (8, 16, 8),
    ),
    "kimi-delta-attention": (
        {"linear_num_heads": 4, "linear_head_dim": 8, "linear_conv_kernel_dim": 2},
        (3 * 4 * 8, 2),
        (4, 8, 8),
    ),
    "short-conv": ({"conv_L_cache": 3}, (64, 3), ()),
}
"""Settings of mixers; channels and tokens that a convolution keeps; heads, key and value sizes of a recurrent state."""

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

NO_STATES: tuple[dict[str, int], tuple[int, ...], tuple[int, ...]] = ({}, (), ())


class Tester:
    """Tiny configurations and inputs of one variant, in the form that the suites want."""

    variant = ""
    task = ""
    settings: ClassVar[dict[str, Any]] = {}
    is_training = True
    batch_size = 13
    seq_length = 7
    vocab_size = 99
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 4
    encoder_seq_length = decoder_seq_length = key_length = seq_length

    def __init__(self, parent: unittest.TestCase) -> None:
        self.parent = parent

    def get_config(self) -> Any:
        return zoo.config(self.variant, self.task, **{**TINY, **self.settings})

    def prepare_config_and_inputs(self) -> tuple[Any, dict[str, Tensor]]:
        shape = [self.batch_size, self.seq_length]
        input_ids = modeling.ids_tensor(shape, self.vocab_size)
        return self.get_config(), {"input_ids": input_ids, "attention_mask": modeling.random_attention_mask(shape)}

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Tensor]]:
        return self.prepare_config_and_inputs()


class EncoderDecoderTester(Tester):
    """The same with a target."""

    settings: ClassVar = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 3}

    def prepare_config_and_inputs(self) -> tuple[Any, dict[str, Tensor]]:
        shape = [self.batch_size, self.seq_length]
        config = self.get_config()
        input_ids = modeling.ids_tensor(shape, self.vocab_size).clamp(3)
        input_ids[:, -1] = config.eos_token_id
        mask = input_ids.ne(config.pad_token_id)
        decoder_input_ids = modeling.ids_tensor(shape, self.vocab_size)
        return config, {
            "input_ids": input_ids,
            "decoder_input_ids": decoder_input_ids,
            "attention_mask": mask,
            "decoder_attention_mask": mask,
        }


class EncoderSuite(modeling.ModelTesterMixin, pipelines.PipelineTesterMixin):
    """The suites that transformers runs on BertModel."""

    model_tester_class: type[Tester]
    all_model_classes: ClassVar[tuple[Any, ...]] = (
        zoo.models.ZooModel,
        zoo.models.ZooForMaskedLM,
        zoo.models.ZooForSequenceClassification,
        zoo.models.ZooForTokenClassification,
    )
    pipeline_model_mapping: ClassVar = {
        "feature-extraction": zoo.models.ZooModel,
        "fill-mask": zoo.models.ZooForMaskedLM,
        "text-classification": zoo.models.ZooForSequenceClassification,
        "token-classification": zoo.models.ZooForTokenClassification,
    }
    model_split_percents: ClassVar = [0.5, 0.8, 0.9]

    def setUp(self) -> None:
        self.model_tester = self.model_tester_class(self)
        self.config_tester = configuration.ConfigTester(self, config_class=zoo.models.ZooConfig, hidden_size=32)

    def test_config(self) -> None:
        self.config_tester.run_common_tests()

    def test_model(self) -> None:
        config, inputs = self.model_tester.prepare_config_and_inputs()
        hidden = zoo.models.ZooModel(config).eval()(**inputs).last_hidden_state
        self.assertEqual(hidden.shape, (self.model_tester.batch_size, self.model_tester.seq_length, config.hidden_size))


class EncoderDecoderSuite(generation.GenerationTesterMixin, EncoderSuite):
    """The suites that transformers runs on MarianModel."""

    all_model_classes: ClassVar[tuple[Any, ...]] = (zoo.models.ZooModel, zoo.models.ZooForConditionalGeneration)
    pipeline_model_mapping: ClassVar = {"feature-extraction": zoo.models.ZooModel}
    is_encoder_decoder = True

    def test_save_load_strict(self) -> None:
        """No key is missing."""
        config, _ = self.model_tester.prepare_config_and_inputs()
        for model_class in self.all_model_classes:
            with tempfile.TemporaryDirectory() as folder:
                model_class(config).save_pretrained(folder)
                _, info = model_class.from_pretrained(folder, output_loading_info=True)
            self.assertEqual(info["missing_keys"], set())


class CausalLMTester(Tester, causal_lm.CausalLMModelTester):
    """A tiny decoder with the heads that transformers' language models have."""

    base_model_class = zoo.models.ZooModel
    config_class = zoo.models.ZooConfig
    causal_lm_class = zoo.models.ZooForCausalLM
    sequence_classification_class = zoo.models.ZooForSequenceClassification
    token_classification_class = zoo.models.ZooForTokenClassification
    # Several processes are compared with one in training mode; a rotary quarter of a head needs several pairs to scale.
    settings: ClassVar = {"dropout": 0.0, "attention_dropout": 0.0, "hidden_size": 64}

    def __init__(self, parent: unittest.TestCase) -> None:
        causal_lm.CausalLMModelTester.__init__(self, parent)
        self.num_attention_heads, self.hidden_size = 4, 64

    def get_config(self) -> Any:
        usual = zoo.config(self.variant, self.task)
        sizes = STATES.get(usual.mixer, NO_STATES)[0] | (EXPERTS if hasattr(usual, "num_experts") else {})
        return zoo.config(self.variant, self.task, **{**TINY, **self.settings, **sizes})

    def prepare_config_and_inputs(self) -> Any:
        return causal_lm.CausalLMModelTester.prepare_config_and_inputs(self)

    def prepare_config_and_inputs_for_common(self) -> Any:
        return causal_lm.CausalLMModelTester.prepare_config_and_inputs_for_common(self)


class RotaryByLayerTables(RotaryByLayerPosition):
    """Rotary tables by layer type, with the interface of transformers' own."""

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
        """Cosines and sines of one layer type."""
        return self.rotations(x, position_ids, [layer_type])[layer_type]

    def __getattr__(self, name: str) -> Any:
        """Frequencies of a layer type, for instance `full_attention_inv_freq`."""
        layer_type, found, _ = name.partition("_inv_freq")
        part: Any = self.by_type[layer_type] if found else None
        return part.rotary_emb.inv_freq if found else super().__getattr__(name)


class CausalLMSuite(causal_lm.CausalLMModelTest):
    """The suites that transformers runs on its decoders, with what its hybrids override."""

    def setUp(self) -> None:
        """Give the class the answer that the suites ask it for, and the zoo's models give: whether there are states."""
        super().setUp()
        stateful = self.model_tester.get_config().mixer_layer_type is not None
        patch = mock.patch.object(zoo.models.ZooForCausalLM, "_is_stateful", stateful)
        patch.start()
        self.addCleanup(patch.stop)

    def _get_conv_state_shape(self, batch_size: int, config: Any) -> tuple[int, ...]:
        return (batch_size, *STATES.get(config.mixer, NO_STATES)[1])

    def _get_recurrent_state_shape(self, batch_size: int, config: Any) -> tuple[int, ...]:
        return (batch_size, *STATES.get(config.mixer, NO_STATES)[2])

    def _get_attention_shape(self, batch_size: int, seq_length: int | None, config: Any) -> Any:
        if config.attention != "latent":
            return super()._get_attention_shape(batch_size, seq_length, config)
        return (batch_size, 1, seq_length, config.head_dim), (batch_size, 1, seq_length, config.kv_lora_rank)

    def attention_mask_padding_matches_padding_free_with_position_ids(self, *args: Any, **kwargs: Any) -> None:
        """The common check, without its exception for models with states: the zoo's take packed rows."""
        with mock.patch.object(zoo.models.ZooForCausalLM, "_is_stateful", new=False):
            super().attention_mask_padding_matches_padding_free_with_position_ids(*args, **kwargs)

    def test_left_padding_compatibility(self) -> None:
        """The common test without padding on the right, after which it would compare logits of padding.

        States skip padding, so that these depend on nothing that is defined; logits of tokens do not.
        """
        config, inputs = self.prepare_config_and_inputs_for_generate()
        whole = {"attention_mask": inputs["input_ids"].new_ones(inputs["input_ids"].shape)}
        super().test_left_padding_compatibility(whole if config.mixer_layer_type else None)

    def test_attention_outputs(self) -> None:
        """The common test, with attentions of attention layers alone, as for Qwen3-Next and LFM2."""
        layer_types = getattr(self.model_tester.get_config(), "layer_types", None)
        if layer_types:
            self.model_tester.num_hidden_layers = sum(name in LAYER_TYPES for name in layer_types)
        super().test_attention_outputs()

    def test_model_rope_scaling_frequencies(self) -> None:
        """The common test, which finds tables by layer type under the names of transformers' own."""
        listed = nn.Module.named_modules

        def with_tables(model: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
            if model.config.position == "rotary-by-layer":
                yield "rotary_emb", RotaryByLayerTables(model.config)
            yield from listed(model, *args, **kwargs)

        with mock.patch.object(zoo.models.ZooModel, "named_modules", with_tables):
            super().test_model_rope_scaling_frequencies()


SUITES: dict[str, tuple[str, type, type]] = {
    "encoder": ("masked-lm", Tester, EncoderSuite),
    "decoder": ("causal-lm", CausalLMTester, CausalLMSuite),
    "encoder-decoder": ("seq2seq-lm", EncoderDecoderTester, EncoderDecoderSuite),
}
"""The task, the tester and the suites of every family."""


def define(text: str) -> type[unittest.TestCase]:
    """Define the test case of one variant in one family, such as "pre-norm/decoder", with every test of its suites."""
    variant, _, family = text.partition("/")
    task, tester, suite = SUITES[family]
    name = "".join(part.capitalize() for part in variant.split("-")) + "ModelTest"
    if family == "encoder-decoder":  # the suites give labels to classes of this table, which the zoo keeps out of it
        classes[zoo.models.ZooConfig.model_type] = zoo.models.ZooForConditionalGeneration.__name__
    own_tester = type(f"{name}er", (tester,), {"variant": variant, "task": task})
    return type(name, (suite, unittest.TestCase), {"model_tester_class": own_tester, "__module__": __name__})


globals().update({case.__name__: case for case in map(define, os.environ["ZOO_SUITE_VARIANTS"].split(","))})
