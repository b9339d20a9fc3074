"""Recipes: read, changed, and weighed against the settings in a variant's name."""

import pytest

import zoo
from zoo.base.errors import ConfigError, UnknownNameError
from zoo.comparison.request.request import Request
from zoo.data.tasks import TASKS, TOKENIZERS
from zoo.training import load_recipe, shipped_recipes
from zoo.training.arguments import training_arguments
from zoo.training.recipe import recipe_for


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_valid(name, tmp_path):
    recipe = load_recipe(name)
    assert recipe.task in TASKS and recipe.tokenizer["kind"] in TOKENIZERS
    training_arguments(recipe.arguments, output_dir=tmp_path, seed=0)


@pytest.mark.parametrize(
    ("variant", "task"),
    [
        ("pre-norm", "translation"),
        ("llama-style@tiny", "language-modeling"),
        ("bert-style:norm=rmsnorm", "masked-language-modeling"),
        ("nlpt-encoder", "masked-language-modeling"),
    ],
)
def test_without_a_task_a_run_takes_that_of_the_variant(variant, task):
    assert recipe_for(None, variant=variant) == recipe_for(task)
    assert recipe_for(None, "small-translation", variant) == load_recipe("small-translation")


def test_a_name_takes_precedence_over_the_recipe():
    recipe = load_recipe("translation")
    assert recipe.model_settings("pre-norm")["hidden_size"] == recipe.model["hidden_size"]
    assert "hidden_size" not in recipe.model_settings("pre-norm:hidden_size=32")
    assert "hidden_size" not in recipe.model_settings("pre-norm@tiny")
    assert "dropout" in recipe.model_settings("pre-norm@tiny")


def test_sizes_of_a_recipe_that_do_not_follow_another_width_are_named(tiny, few):
    recipe = load_recipe("small-language-modeling")
    assert not recipe.kept_sizes("llama-style") and not recipe.kept_sizes("llama-style:num_hidden_layers=2")
    assert recipe.kept_sizes("llama-style:hidden_size=80") == {"intermediate_size": 384}
    assert recipe.changed(model={"hidden_size": 80}).kept_sizes("llama-style") == {"intermediate_size": 384}
    assert not recipe.changed(model={"hidden_size": 80, "intermediate_size": 320}).kept_sizes("llama-style")
    lines = []
    settings = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    zoo.train("pre-norm", **{**tiny, "settings": settings}, data=few, recipe="small-translation", tell=lines.append)
    assert "Another hidden_size is given, and sizes of the recipe stay: intermediate_size=256" in lines[0]


def test_a_given_seed_wins_over_that_of_a_recipe(tiny, few):
    recipe = load_recipe("translation").changed(arguments={"seed": 7})
    for given, seed in (({}, 7), ({"seed": 3}, 3), ({"seed": 0}, 0)):
        assert Request(["pre-norm"], recipe=recipe, seeds=2, **given).all_seeds == [seed, seed + 1]
        assert zoo.train("pre-norm", data=few, recipe=recipe, **{**tiny, "max_steps": 1}, **given).run.seed == seed


def test_what_is_said_beside_a_recipe_wins_over_a_preset_and_quirks():
    recipe = load_recipe("translation").changed(model={"hidden_size": 512, "norm_placement": "pre"})
    assert recipe.model_settings("pre-norm@tiny")["hidden_size"] == 512
    assert "num_hidden_layers" not in recipe.model_settings("pre-norm@tiny")
    assert recipe.changed(arguments={"max_steps": 1}).model_settings("pre-norm@tiny")["hidden_size"] == 512


def test_what_is_said_beside_a_recipe_must_not_contradict_a_setting_in_a_name(tmp_path):
    with pytest.raises(ConfigError, match=r"'pre-norm:hidden_size=64' sets hidden_size=64, and hidden_size=512 was"):
        zoo.train("pre-norm:hidden_size=64", settings={"hidden_size": 512}, output_dir=tmp_path / "model")
    with pytest.raises(ConfigError, match="give one of them"):
        zoo.compare(["pre-norm", "pre-norm:dropout=0.3"], settings={"dropout": 0.1}, output_dir=tmp_path / "comparison")
    assert not list(tmp_path.iterdir())
    recipe = load_recipe("translation").changed(model={"hidden_size": 64, "dropout": 0.1})
    recipe.check_name("pre-norm@tiny:hidden_size=64,num_hidden_layers=3")
    assert "hidden_size" not in recipe.model_settings("pre-norm@tiny:hidden_size=64")


def test_another_kind_of_tokenizer_starts_from_its_own_options(tmp_path):
    recipe = load_recipe("translation")
    assert recipe.changed(tokenizer={"kind": "word"}).tokenizer == {"kind": "word", "joint": True}
    assert recipe.changed(tokenizer="word").tokenizer == {"kind": "word", "joint": True}
    assert recipe.changed(tokenizer={"vocab_size": 500}).tokenizer == {**recipe.tokenizer, "vocab_size": 500}
    wanted = {**recipe.tokenizer, "kind": "bpe", "vocab_size": 512}
    assert recipe.changed(tokenizer="bpe:vocab_size=512").tokenizer == wanted
    assert recipe.changed(tokenizer="word:min_frequency=1,joint=false").tokenizer["joint"] is False
    assert recipe.changed(tokenizer=tmp_path).tokenizer == {"folder": str(tmp_path)}
    assert recipe.changed(tokenizer=tmp_path).changed(tokenizer="word").tokenizer == {"kind": "word", "joint": True}


def test_epochs_take_the_place_of_a_recipes_updates():
    recipe = load_recipe("books")
    epochs = recipe.changed(arguments={"num_train_epochs": 2}).arguments
    assert epochs == {**{k: v for k, v in recipe.arguments.items() if k != "max_steps"}, "num_train_epochs": 2}
    assert recipe.changed(arguments={"num_train_epochs": 2, "max_steps": -1}).arguments["max_steps"] == -1


@pytest.mark.parametrize("function", [zoo.train, lambda name, **given: zoo.compare([name], **given)])
def test_epochs_and_updates_together_are_refused(function, tmp_path):
    with pytest.raises(ConfigError, match="^max_steps=3 and num_train_epochs=2 were given; give one of both"):
        function("pre-norm", max_steps=3, num_train_epochs=2, output_dir=tmp_path / "out")
    file = tmp_path / "recipe.yaml"
    file.write_text("task: translation\narguments: {max_steps: 3, num_train_epochs: 2}")
    with pytest.raises(ConfigError, match=r"recipe.yaml: max_steps=3 and num_train_epochs=2 were given"):
        function("pre-norm", recipe=file, output_dir=tmp_path / "out")


def test_bad_recipes(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'translation'"):
        load_recipe("translaton")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe(tmp_path / "missing.yaml")
    file = tmp_path / "recipe.yaml"
    for text, error, message in [
        ("task: [", ConfigError, "not valid YAML"),
        ("task: copy\nmodel:\n  dropout: 0.1\n  dropout: 0.2\n", ConfigError, r"key 'dropout' is there twice .*line 4"),
        ('{"task": "copy", "task": "words"}', ConfigError, "key 'task' is there twice"),
        ("- a", ConfigError, "must name its task"),
        ("task: translation\nmodle: {}", UnknownNameError, "did you mean 'model'"),
        ("task: translation\nmodel: 3", ConfigError, "must hold names and values"),
        ("task: translation\nexplicit: hidden_size", ConfigError, "must be a list of names, not 'hidden_size'"),
    ]:
        file.write_text(text)
        with pytest.raises(error, match=message):
            load_recipe(file)


def test_numbers_are_written_as_people_write_them(tmp_path):
    file = tmp_path / "recipe.yaml"
    written = ("5e-4", "5E-4", "+0.5e-3", ".5e-3", "5.e-4", "0.0005", "5.0e-04")
    for text in written:
        file.write_text(f"task: translation\narguments: {{learning_rate: {text}}}")
        assert load_recipe(file).arguments == {"learning_rate": 0.0005}
    for text in ("e-4", "5e", "5e-4x", "1e2e3"):
        file.write_text(f"task: translation\nmodel: {{hidden_act: {text}}}")
        assert load_recipe(file).model == {"hidden_act": text}
