"""Recipes: every mistake in one message, overrides, shipped files, the command line."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
import yaml

from recipes.__main__ import plan
from recipes.controls import CONTROLS
from recipes.errors import RecipeError
from recipes.load import ROOT, dump_recipe, load_recipe, parse_recipe, recipe_hash, shipped

MINIMAL = """
name: small
data: {dataset: d}
codec: plain
model: {family: qwen3_vl, checkpoint: c}
adapter: {kind: lora}
batch: {size: 1}
train: {learning_rate: 1e-4, epochs: 1}
"""


def message(text: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, overrides)
    return str(error.value)


def test_all_mistakes_are_in_one_message():
    text = MINIMAL.replace("codec: plain", "codex: plain").replace("size: 1", "size: 0")
    said = message(text, "train.sed=1", "nonsense")
    assert said.startswith("5 mistakes")
    for part in (
        "codex: unknown key; the nearest is codec",
        "codec: missing",
        "batch.size",
        "train.sed: unknown key; the nearest is seed",
        "nonsense",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("train.max_steps=3", "exactly one of epochs and max_steps"),
        ("train.learning_rate=-1", "train.learning_rate"),
        ("train.learning_rate=.nan", "finite"),
        ("images.min_pixels=2000000", "min_pixels 2000000 is above max_pixels"),
        ("model.family=qwen2", "model.family"),
        ("freeze=[vision]", "freeze is for adapter.kind full"),
        ("adapter.roles=[]", "adapter.roles is empty"),
        ("adapter={kind: full, train_also: [head]}", "train_also is for kind lora"),
        ("adapter={kind: full, init: runs/x}", "init is for kind lora"),
        ("name=../escape", "name"),
        ("learning_rate=1", "learning_rate: unknown key; it belongs into a section: train.learning_rate"),
        ("codec=loc_tokens", "codec loc_tokens writes places on a canvas"),
        ("canvas.size=224", "canvas is for families that see one picture"),
        ("train.codec=plain", "train.codec: unknown key; it belongs to the top: codec"),
        ("codec=scintiground_jsn", "codec: Input should be 'scintiground_json'"),
        ("prompt.template=plane", "prompt.template: Input should be 'scintiground'"),
        ("data.dataset.deeper=1", "not a section"),
        ("train.learning_rate=[", "not YAML"),
        ("train.optimizer=muon", "muon is for adapter.kind full"),
        ("vision_cache=on", "vision_cache: Input should be 'off', 'memory', 'disk' or 'pixels', not 'on'"),
        ("vision_cache=true", "vision_cache: Input should be 'off', 'memory', 'disk' or 'pixels'"),
        ("vision_cache_gib=0", "vision_cache_gib: Input should be greater than 0"),
        ("vision_cache_dir=cache", "vision_cache_dir is for vision_cache: disk or pixels, not off"),
        ("vision_cach=disk", "vision_cach: unknown key; the nearest is vision_cache"),
        ("data.vision_cache=disk", "data.vision_cache: unknown key; it belongs to the top: vision_cache"),
        ("train.min_learning_rate_ratio=0.1 ", None),
    ],
)
def test_contradictions_are_refused(override, part):
    if part is None:
        assert parse_recipe(MINIMAL, [override]).train.min_learning_rate_ratio == pytest.approx(0.1)
    else:
        assert part in message(MINIMAL, override)


@pytest.mark.parametrize("place", ["file", "override"])
def test_yes_and_no_are_words(place):
    """Both stay classes, and truth values stay truth values; dumped and read again too."""
    weights, switch = "{yes: 4, no: 1, off: 2, Abnormal: 3}", "group_by_length: true"
    text = MINIMAL.replace("size: 1", f"size: 1, class_weights: {weights}, {switch}") if place == "file" else MINIMAL
    overrides = [f"batch.class_weights={weights}", "batch.group_by_length=true"] if place == "override" else []
    batch = parse_recipe(text, overrides).batch
    assert batch.class_weights == {"yes": 4, "no": 1, "off": 2, "Abnormal": 3}
    assert batch.group_by_length is True
    assert parse_recipe(dump_recipe(parse_recipe(text, overrides))).batch == batch


@pytest.mark.parametrize("place", ["file", "override"])
def test_off_is_a_word(place):
    """YAML 1.1 takes it for a truth value; dumped and read again too."""
    text = MINIMAL + "vision_cache: off\n" if place == "file" else MINIMAL
    recipe = parse_recipe(text, ["vision_cache=off"] if place == "override" else [])
    assert recipe.vision_cache == "off"
    assert parse_recipe(dump_recipe(recipe)) == recipe


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize(
    ("overrides", "key", "fix"),
    [
        (["adapter={kind: full}"], "adapter.kind full trains vision and projector", "set freeze: [vision, projector]"),
        (["adapter={kind: full}", "freeze=[vision, embeddings]"], "adapter.kind full trains projector", "set freeze"),
        (["adapter={kind: full}", "freeze=[projector]"], "adapter.kind full trains vision:", "set freeze"),
        (["adapter.train_also=[head, projector]"], "adapter.train_also trains the projector", "leave projector out"),
        (
            ["model.family=paligemma", "canvas.size=224", "adapter.vision=true"],
            "adapter.vision trains layers of the vision tower",
            "set adapter.vision: false",
        ),
        (["model.family=chat"], "for models that are loaded here", "set vision_cache: off"),
    ],
)
def test_features_are_not_kept_where_what_makes_them_is_trained(kind, overrides, key, fix):
    said = message(MINIMAL, f"vision_cache={kind}", *overrides)
    assert f"vision_cache {kind}" in said
    assert key in said
    assert fix in said
    assert parse_recipe(MINIMAL, ["vision_cache=off", *overrides]).vision_cache == "off"


@pytest.mark.parametrize(
    "overrides",
    [
        ["adapter={kind: full}", "freeze=[projector, vision]"],
        ["adapter.train_also=[embeddings, head]"],
        ["vision_cache_dir=cache", "vision_cache_gib=0.5"],
    ],
)
def test_features_are_kept_where_vision_tower_and_projector_are_frozen(overrides):
    assert parse_recipe(MINIMAL, ["vision_cache=disk", *overrides]).vision_cache == "disk"


def test_four_bit_bases_cannot_be_trained_in_full():
    said = message(MINIMAL, "adapter.kind=full", "model.quantization=nf4")
    assert "cannot be trained in full" in said


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "not YAML"),
        ("- a", "mapping of sections"),
        (MINIMAL + "name: again\n", "occurs twice"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_text_that_is_no_recipe(text, part):
    assert part in message(text)


def test_overrides_are_yaml_and_win():
    recipe = parse_recipe(MINIMAL, ["train.betas=[0.9, 0.99]", "data.validation=null", "train.learning_rate=1e-5"])
    assert recipe.train.betas == (0.9, 0.99)
    assert recipe.data.validation is None
    assert recipe.train.learning_rate == 1e-5


def test_hash_ignores_comments_and_order_but_no_value():
    lines = MINIMAL.strip().splitlines()
    same = "# comment\n" + "\n".join(reversed(lines))
    assert recipe_hash(parse_recipe(same)) == recipe_hash(parse_recipe(MINIMAL))
    assert recipe_hash(parse_recipe(MINIMAL, ["train.seed=1"])) != recipe_hash(parse_recipe(MINIMAL))


def test_dump_and_load_round_trip():
    recipe = parse_recipe(MINIMAL)
    assert parse_recipe(dump_recipe(recipe)) == recipe


@pytest.mark.parametrize("name", shipped())
def test_shipped_recipes_load_and_explain_themselves(name):
    recipe = load_recipe(name)
    header = (ROOT / f"{name}.yaml").read_text().splitlines()
    assert header[0].startswith("# ")
    words = ("-m train", "--recipe", "make demo")
    assert any(word in line for word in words for line in header if line.startswith("#"))
    assert parse_recipe(dump_recipe(recipe)) == recipe


def test_paper_recipe_has_the_published_values():
    """Source: scintiground.md, section 5."""
    recipe = load_recipe("scintiground/qwen3_vl_2b_lora_paper")
    assert (recipe.adapter.rank, recipe.adapter.alpha, recipe.adapter.dropout) == (8, 16, 0.05)
    assert (recipe.batch.size, recipe.batch.accumulation, recipe.batch.max_target_tokens) == (1, 8, 96)
    assert recipe.train.warmup_steps == round(0.03 * 7716)
    assert (recipe.train.learning_rate, recipe.train.weight_decay, recipe.train.clip_norm) == (5e-5, 0.01, 1.0)
    assert recipe.images.max_pixels == recipe.images.min_pixels == 50_176
    assert recipe.model.quantization == "nf4"
    assert recipe.decoding.max_new_tokens == 96


def test_paligemmas_paper_recipe_has_the_published_values():
    """Source: scintiground.md, section 5."""
    recipe = load_recipe("scintiground/paligemma_3b_224_paper")
    assert recipe.model.checkpoint == "google/paligemma-3b-pt-224"
    assert (recipe.model.quantization, recipe.model.dtype, recipe.train.precision) == ("nf4", "float16", "fp16")
    assert (recipe.adapter.rank, recipe.adapter.alpha, recipe.adapter.dropout) == (8, 16, 0.05)
    assert (recipe.adapter.roles, recipe.adapter.vision) == (("attention", "mlp"), True)
    assert (recipe.batch.size, recipe.batch.accumulation, recipe.batch.max_target_tokens) == (1, 8, 96)
    assert (recipe.train.learning_rate, recipe.train.weight_decay, recipe.train.clip_norm) == (5e-5, 0.01, 1.0)
    assert (recipe.train.betas, recipe.train.epsilon) == ((0.9, 0.999), 1e-8)
    assert (recipe.train.schedule, recipe.train.warmup_steps, recipe.train.epochs) == ("constant", 0, 2)
    assert (recipe.train.seed, recipe.train.gradient_checkpointing) == (5070, True)
    assert recipe.codec == "scintiground_json"
    assert recipe.canvas.model_dump() == {
        "size": 224,
        "arrange": "side_by_side",
        "order": ("ANT", "POST"),
        "missing": "leave_out",
        "gap": 0,
        "resize": "squash",
    }
    assert (recipe.decoding.max_new_tokens, recipe.decoding.batch_size) == (96, 8)


@pytest.mark.parametrize("file", sorted((ROOT / "accelerate").glob("*.yaml")), ids=lambda file: file.stem)
def test_launch_settings_are_read_by_accelerate(file):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(file))
    assert config.num_processes == yaml.safe_load(file.read_text())["num_processes"]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "recipes", *words], capture_output=True, text=True, check=False)


def test_unknown_recipe_names_the_nearest():
    result = command("show", "demo/lorra")
    assert result.returncode == 2
    assert "did you mean demo/lora?" in result.stderr
    assert "Traceback" not in result.stderr


def test_commands_say_what_is_next():
    assert "next: python -m recipes show" in command("ls").stdout
    assert "recipe demo_lora" in command("validate", "demo/lora", "train.seed=3").stdout
    plan = command("plan", "scintiground/qwen3_vl_2b_lora").stdout
    for word in ("benchmarks prepare scintiground", "-m train", "-m infer", "--control prompt_only", "-m eval"):
        assert word in plan
    shown = command("show", "demo/lora").stdout
    assert shown.startswith("# ")
    assert parse_recipe(shown) == load_recipe("demo/lora")


def lines_of_plan(*words: str) -> list[str]:
    result = command("plan", *words)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_has_its_reader_however_it_is_named(name):
    """Phantoms are written in the form of ScintiGround, those of volumes in the form of SGMRI-VQA."""
    benchmark = name.split("/")[0]
    phantom = "sgmri" if name.startswith("demo/mri") else "scintiground"
    reader = phantom if benchmark in ("demo", "minority") else benchmark
    for spelling in (name, f"{name}.yaml", str(ROOT / f"{name}.yaml"), f"recipes/{name}.yaml"):
        assert plan(spelling, [], load_recipe(spelling))[0].startswith(f"python -m benchmarks prepare {reader} ")


def controls_of(lines: list[str]) -> list[str]:
    return [line.split("--control ")[1].split()[0] for line in lines if "--control" in line]


def test_every_control_is_planned_where_it_applies(tmp_path):
    assert controls_of(lines_of_plan("scintiground/qwen3_vl_2b_lora")) == list(CONTROLS)
    own = tmp_path / "own.yaml"
    own.write_text(MINIMAL)
    lines = lines_of_plan(str(own))
    assert "benchmarks prepare generic" in lines[0]
    assert controls_of(lines) == ["blank_image", "shuffled_image"]


def test_overrides_reach_training_and_the_base_and_survive_the_shell():
    overrides = ["train.betas=[0.9, 0.99]", "images.max_pixels=50176"]
    lines = lines_of_plan("demo/lora", *overrides)
    for start in ("accelerate launch", "python -m infer models/demo_base --recipe"):
        (line,) = [line for line in lines if line.startswith(start)]
        words = shlex.split(line, comments=True)
        assert [word for word in words if "." in word and "=" in word] == overrides


def test_planned_words_are_words_the_commands_know():
    """Every planned `python -m infer` line passes that command's own parser."""
    from infer.__main__ import _parser

    for line in lines_of_plan("demo/lora", "decoding.batch_size=4"):
        if line.startswith("python -m infer"):
            _parser().parse_intermixed_args(shlex.split(line, comments=True)[3:])


def test_plan_launches_and_prepares_as_the_recipes_header_says():
    lines = lines_of_plan("sgmri/qwen3_vl_8b_full", "data.dataset=mine", "train.epochs=1")
    assert lines[0].endswith("--out mine --set knee_slice_offset=1 validation_share=0.05")
    assert lines[2] == (
        "accelerate launch --config_file recipes/accelerate/gpu8.yaml --use_deepspeed --deepspeed_config_file "
        "recipes/deepspeed/zero3.json -m train sgmri/qwen3_vl_8b_full data.dataset=mine train.epochs=1"
    )


def test_plan_predicts_as_the_recipes_header_says_and_so_do_the_controls():
    """The published evaluation shows every slice, the published training does not."""
    lines = lines_of_plan("sgmri/qwen3_vl_8b_full_paper")
    asked = [line for line in lines if " -m infer runs/" in line]
    assert len(asked) == 3
    for line in asked:
        assert "--split test frames.select=all frames.count=null images.min_pixels=602112" in line
        assert line.count("--out ") == 1


@pytest.mark.parametrize(
    "name", ["qwen3_vl_8b_full_paper", "qwen3_vl_8b_lora", "qwen3_vl_8b_zero_shot", "chat_zero_shot"]
)
def test_plans_of_sgmri_make_the_slices_that_its_release_has_not(name):
    assert "prepare sgmri RELEASE --volumes FASTMRI --annotations FASTMRI_PLUS " in lines_of_plan(f"sgmri/{name}")[0]


def test_plan_of_a_recipe_for_prediction_trains_nothing():
    lines = lines_of_plan("sgmri/qwen3_vl_8b_zero_shot")
    assert not any("-m train" in line for line in lines)
    assert sum("--recipe sgmri/qwen3_vl_8b_zero_shot" in line for line in lines) == 1
    assert lines[-1].startswith("python -m eval runs/predictions/sgmri_qwen3_vl_8b_zero_shot ")
