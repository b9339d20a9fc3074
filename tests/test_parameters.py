import dataclasses

import pytest

import zoo
from zoo.analysis.parameters import by_module, count_by_parameter
from zoo.registry import list_variants


@pytest.mark.parametrize("name", list_variants())
def test_the_table_is_that_of_the_built_model(name):
    table = count_by_parameter(f"{name}@tiny", vocab_size=40)
    model = zoo.build(f"{name}@tiny", vocab_size=40)
    assert {row.name: row.shape for row in table.rows if row.shared_with is None} == {
        key: tuple(parameter.shape) for key, parameter in model.named_parameters()
    }
    assert table.total == sum(parameter.numel() for parameter in model.parameters())
    modules = by_module(table)
    assert sum(row.count * row.times for row in modules) == table.total and by_module(table, fold=False)[0].times == 1


def test_the_table_of_a_saved_model(tmp_path):
    zoo.build("mixtral-style@tiny", vocab_size=41).save_pretrained(tmp_path)
    table = count_by_parameter(str(tmp_path))
    assert dataclasses.replace(table, name="") == dataclasses.replace(
        count_by_parameter("mixtral-style@tiny:vocab_size=41"), name=""
    )


def test_shared_parameters_are_counted_once():
    rows = {row.name: row for row in count_by_parameter("marian-style@tiny").rows}
    tied = rows["lm_head.weight"]
    assert (tied.count, tied.shared_with) == (0, "model.encoder.embed_tokens.weight")
    assert rows["lm_head.bias"].count == 32000


def test_embeddings_of_tokens_and_positions_are_told_apart():
    table = count_by_parameter("pre-norm@tiny:vocab_size=10,max_position_embeddings=7")
    assert table.total - table.non_embedding == (10 + 7) * 64


def test_layers_that_differ_have_rows_of_their_own():
    table = count_by_parameter("universal@tiny")
    assert any(row.name.endswith("step_embedding") and row.times == 1 for row in by_module(table))
    layers = [row for row in by_module(count_by_parameter("pre-norm@tiny")) if "layers.*" in row.name]
    assert {row.times for row in layers} == {2}
