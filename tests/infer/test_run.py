"""Predicting a split with the tiny model: blocks, resuming, bad images, controls, what the manifest says."""

import json
import shutil

import msgspec
import pytest
from PIL import Image as PILImage

import infer.run
from benchmarks.dataset import image_root, load_info, read_records
from benchmarks.errors import DataError
from benchmarks.predictions import PREDICTIONS, read_manifest, read_predictions
from benchmarks.prepare import prepare
from benchmarks.scintiground_text import CLASS_WORDS
from infer.engines.shared_prefix import SharedPrefixEngine
from infer.run import Request, run
from models.provenance import read_encoder, weights_hash
from recipes.load import dump_recipe


def request(model, data, out, *overrides, **changes):
    """One question at a time, in blocks of four."""
    overrides = ("decoding.batch_size=1", *overrides)
    values = {"weights": str(model), "data": data, "split": "test", "out": out, "overrides": overrides, "limit": 10}
    return Request(**{**values, **changes})


def content(folder):
    return (folder / PREDICTIONS).read_bytes()


@pytest.fixture(scope="module")
def whole(model_run, phantom_data, tmp_path_factory):
    """An uninterrupted run over ten records in blocks of four."""
    return run(request(model_run, phantom_data, tmp_path_factory.mktemp("whole") / "out"))


@pytest.fixture
def own_data(phantom_release, tmp_path):
    """A dataset of its own, whose image files may be spoilt."""
    shutil.copytree(phantom_release, tmp_path / "release")
    prepare("scintiground", tmp_path / "release", tmp_path / "data")
    return tmp_path / "data"


def test_rows_are_in_dataset_order_and_complete(whole, phantom_data):
    rows = read_predictions(whole)
    assert [row.id for row in rows] == [record.id for record in read_records(phantom_data, "test")][:10]
    assert all(row.text is not None and row.finish and row.tokens and (row.answer or row.invalid) for row in rows)
    assert not any(row.error for row in rows)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_texts_do_not_depend_on_the_batch_size(whole, model_run, phantom_data, tmp_path, size):
    out = run(request(model_run, phantom_data, tmp_path / "out", f"decoding.batch_size={size}"))
    assert content(out) == content(whole)


@pytest.mark.parametrize("rows", [0, 3, 4, 9])
def test_a_continued_run_is_the_uninterrupted_one(whole, model_run, phantom_data, tmp_path, monkeypatch, rows):
    class Killed(BaseException):
        pass

    left = [rows]
    to_row = infer.predict.to_row

    def killing(*arguments):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return to_row(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("infer.predict.to_row", killing)
        with pytest.raises(Killed):
            run(request(model_run, phantom_data, tmp_path / "out"))
    assert content(run(request(model_run, phantom_data, tmp_path / "out"))) == content(whole)


def test_the_manifest_says_what_was_run(whole, model_run, phantom_data):
    manifest = read_manifest(whole)
    assert (manifest.engine, manifest.codec, manifest.split) == ("hf", "scintiground_json", "test")
    assert (manifest.records, manifest.limit, manifest.control) == (10, 10, None)
    assert manifest.dataset_hash == load_info(phantom_data).content_hash
    assert manifest.encoder_fingerprint == read_encoder(model_run / "model").fingerprint
    assert manifest.weights_hash == weights_hash(model_run / "model")
    assert manifest.base_weights_hash is None
    chosen = {"max_new_tokens": 12, "batch_size": 1, "share_images": True, "valid_boxes": False, "mask_decoder": None}
    assert manifest.decoding == {**chosen, "greedy": True, "dtype": "float32"}
    assert manifest.environment["processes"] == 1
    assert manifest.timing["tokens_per_second"] > 0
    assert manifest.recipe["decoding"]["max_new_tokens"] == 12


def test_the_manifest_of_an_adapter_names_its_base(adapter_run, phantom_data, tmp_path):
    out = run(request(adapter_run, phantom_data, tmp_path / "out", "decoding.max_new_tokens=1", limit=1))
    manifest = read_manifest(out)
    assert manifest.weights_hash == weights_hash(adapter_run / "model")
    assert manifest.base_weights_hash == weights_hash(adapter_run.parent / "base")


# Scores of classes.


def with_classes_first(model, data, out, *overrides, **changes):
    overrides = ("codec=scintiground_class_first", "decoding.max_new_tokens=2", *overrides)
    return request(model, data, out, *overrides, limit=14, allow_mismatch=True, **changes)


@pytest.fixture(scope="module")
def scored(model_run, phantom_data, tmp_path_factory):
    """An uninterrupted run over fourteen records, blocks of four, with the class first."""
    return run(with_classes_first(model_run, phantom_data, tmp_path_factory.mktemp("scored") / "out"))


def test_every_closed_question_has_its_scores_and_no_other(scored, phantom_data):
    tasks = set()
    for record, row in zip(read_records(phantom_data, "test"), read_predictions(scored), strict=False):
        tasks.add(record.task)
        assert tuple(row.label_scores or ()) == CLASS_WORDS.get(record.task, ())
        assert row.label_scores_at == ("prompt" if record.task in CLASS_WORDS else None)
    assert "grounding" in tasks
    assert len(tasks) > 1


@pytest.mark.parametrize("size", [1, 5])
def test_scores_do_not_depend_on_the_batch_size(scored, model_run, phantom_data, tmp_path, size):
    out = run(with_classes_first(model_run, phantom_data, tmp_path / "out", f"decoding.batch_size={size}"))
    for row, expected in zip(read_predictions(out), read_predictions(scored), strict=True):
        assert msgspec.structs.replace(row, label_scores=None) == msgspec.structs.replace(expected, label_scores=None)
        assert row.label_scores == (expected.label_scores and pytest.approx(expected.label_scores, abs=1e-4))


def test_scores_of_a_continued_run_are_byte_for_byte_the_uninterrupted_ones(
    scored, model_run, phantom_data, tmp_path, monkeypatch
):
    generate, left = SharedPrefixEngine.generate, [2]

    class Killed(BaseException):
        pass

    def killed(self, records):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return generate(self, records)

    with monkeypatch.context() as patch:
        patch.setattr(SharedPrefixEngine, "generate", killed)
        with pytest.raises(Killed):
            run(with_classes_first(model_run, phantom_data, tmp_path / "out"))
    assert content(run(with_classes_first(model_run, phantom_data, tmp_path / "out"))) == content(scored)


@pytest.mark.parametrize("control", ["blank_image", "shuffled_image"])
def test_a_control_with_a_model_has_scores_of_what_it_was_shown(scored, model_run, phantom_data, tmp_path, control):
    rows = read_predictions(run(with_classes_first(model_run, phantom_data, tmp_path / "out", control=control)))
    pairs = [(row.label_scores, own.label_scores) for row, own in zip(rows, read_predictions(scored), strict=True)]
    assert all((found is None) == (own is None) for found, own in pairs)
    assert any(found != pytest.approx(own, abs=1e-4) for found, own in pairs if found is not None)


# Resuming refuses whatever would mix two systems in one file.


def interrupted(request_, monkeypatch):
    """A prediction folder after the first block."""

    class Killed(BaseException):
        pass

    generate, calls = SharedPrefixEngine.generate, []

    def killed(self, records):
        if calls:
            raise Killed
        calls.append(records)
        return generate(self, records)

    with monkeypatch.context() as patch:
        patch.setattr(SharedPrefixEngine, "generate", killed)
        with pytest.raises(Killed):
            run(request_)


def refused(request_, field):
    with pytest.raises(DataError, match="holds predictions made with other settings") as raised:
        run(request_)
    assert f"{field}: " in raised.value.message


def change_a_weight(path):
    from safetensors.torch import load_file, save_file

    weights = load_file(path)
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, path, metadata={"format": "pt"})


def test_another_limit_on_new_tokens_is_refused(model_run, phantom_data, tmp_path, monkeypatch):
    interrupted(request(model_run, phantom_data, tmp_path / "out"), monkeypatch)
    refused(request(model_run, phantom_data, tmp_path / "out", "decoding.max_new_tokens=13"), "decoding.max_new_tokens")


def test_one_changed_weight_is_refused(model_run, phantom_data, tmp_path, monkeypatch):
    shutil.copytree(model_run, tmp_path / "run")
    interrupted(request(tmp_path / "run", phantom_data, tmp_path / "out"), monkeypatch)
    change_a_weight(tmp_path / "run" / "model" / "model.safetensors")
    refused(request(tmp_path / "run", phantom_data, tmp_path / "out"), "weights_hash")


def test_one_changed_weight_of_the_base_under_an_adapter_is_refused(adapter_run, phantom_data, tmp_path, monkeypatch):
    shutil.copytree(adapter_run.parent / "base", tmp_path / "base")
    shutil.copytree(adapter_run / "model", tmp_path / "model")
    # An adapter of others: nothing beside it says on which base it was trained.
    (tmp_path / "model" / "encoder.json").unlink()
    ours = request(tmp_path / "model", phantom_data, tmp_path / "out", f"model.checkpoint={tmp_path / 'base'}")
    interrupted(ours, monkeypatch)
    change_a_weight(tmp_path / "base" / "model.safetensors")
    refused(ours, "base_weights_hash")


def test_a_changed_prompt_file_is_refused(tiny, make_recipe, phantom_data, tmp_path, monkeypatch):
    prompt, recipe = tmp_path / "prompt.yaml", tmp_path / "recipe.yaml"
    prompt.write_text('user: "{question}"')
    recipe.write_text(dump_recipe(make_recipe(f"prompt.file={prompt}")))
    ours = request(tiny, phantom_data, tmp_path / "out", recipe=str(recipe))
    interrupted(ours, monkeypatch)
    prompt.write_text('user: "{question} "')
    refused(ours, "encoder_fingerprint")


def test_another_dataset_is_refused(model_run, phantom_data, own_data, tmp_path, monkeypatch):
    interrupted(request(model_run, own_data, tmp_path / "out"), monkeypatch)
    path = tmp_path / "release" / "multitask.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    (tmp_path / "release" / "SHA256SUMS.txt").unlink()
    prepare("scintiground", tmp_path / "release", own_data)
    refused(request(model_run, own_data, tmp_path / "out"), "dataset_hash")


# Bad images.


def _remove(path):
    path.unlink()
    return "does not exist"


def _truncate(path):
    path.write_bytes(path.read_bytes()[:400])
    return "cannot be read"


def _resize(path):
    PILImage.new("L", (63, 128)).save(path)
    return "is 63x128 pixels"


@pytest.mark.parametrize("spoil", [_remove, _truncate, _resize])
def test_a_bad_image_fails_its_own_rows_and_no_other(whole, model_run, own_data, tmp_path, spoil):
    records = list(read_records(own_data, "test"))[:10]
    expected = read_predictions(whole)
    bad = records[5].images[0].path
    message = spoil(image_root(own_data) / bad)
    rows = read_predictions(run(request(model_run, own_data, tmp_path / "out")))
    failed = 0
    for record, row, good in zip(records, rows, expected, strict=True):
        if bad in [image.path for image in record.images]:
            failed += 1
            assert message in row.error
            assert f"record {record.id} (multitask.jsonl row {record.source.row})" in row.error
            assert (row.text, row.answer, row.invalid) == (None, None, None)
        else:
            assert row == good
    assert 0 < failed < 10


# Controls.


def test_blank_images_give_what_black_files_give(model_run, phantom_data, own_data, tmp_path):
    control = run(request(model_run, phantom_data, tmp_path / "blank", control="blank_image"))
    for record in read_records(own_data, "test"):
        for image in record.images:
            PILImage.new("RGB", (image.width, image.height)).save(image_root(own_data) / image.path, "PNG")
    assert content(control) == content(run(request(model_run, own_data, tmp_path / "black")))
    assert (read_manifest(control).control, read_manifest(control).name) == ("blank_image", "blank_image")


def test_shuffled_images_give_what_the_other_patients_files_give(model_run, phantom_data, own_data, tmp_path):
    from infer.controls import shuffle_images

    control = run(request(model_run, phantom_data, tmp_path / "shuffled", control="shuffled_image"))
    records = list(read_records(phantom_data, "test"))[:10]
    root, own_root = image_root(phantom_data), image_root(own_data)
    for record, other in zip(records, shuffle_images(records, infer.run.SHUFFLE_SEED), strict=True):
        for image, shown in zip(record.images, other.images, strict=True):
            shutil.copy(root / shown.path, own_root / image.path)
    assert content(control) == content(run(request(model_run, own_data, tmp_path / "files")))


@pytest.mark.parametrize("control", ["majority", "prompt_only", "majority_corrected", "prompt_only_corrected"])
def test_a_prior_control_needs_no_weights_and_no_images(own_data, tmp_path, control):
    shutil.rmtree(image_root(own_data))
    folder = run(request(None, own_data, tmp_path / "out", weights=None, control=control))
    manifest = read_manifest(folder)
    assert (manifest.name, manifest.control, manifest.engine) == (control, control, "control")
    assert all(row.answer and row.label_scores is None for row in read_predictions(folder))


@pytest.mark.parametrize("control", ["majority", "prompt_only_corrected"])
def test_a_prior_control_refuses_another_benchmark_and_names_the_controls_for_it(own_data, tmp_path, control):
    path = own_data / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"benchmark": "generic"}))
    with pytest.raises(DataError, match=f"control {control} .* the dataset's benchmark is generic") as raised:
        run(request(None, own_data, tmp_path / "out", weights=None, control=control))
    assert raised.value.where == str(own_data)
    assert "blank_image or shuffled_image" in raised.value.fix
    assert not (tmp_path / "out").exists()
