"""The tiny twin: complete on disk, the real classes, the same every time."""

import pytest
import torch

from models.provenance import weights_hash
from models.tiny import SGMRI_PIECES, SPECIAL, TinySize, build_tiny_qwen3_vl, train_tokenizer

TEXTS = ["vqa: Is the left knee hot?", '{"task":"vqa","answer":"It is.","class":"yes"}'] * 3
SMALL = TinySize(hidden=32, layers=1, vision_hidden=32, vision_layers=1, vocabulary=400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin")
    build_tiny_qwen3_vl(folder, TEXTS, SMALL, seed=1)
    return folder


def test_the_auto_classes_load_the_real_classes_from_the_folder_alone(folder):
    from transformers import (
        AutoModelForImageTextToText,
        AutoProcessor,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
    )

    assert isinstance(AutoProcessor.from_pretrained(folder, local_files_only=True), Qwen3VLProcessor)
    model = AutoModelForImageTextToText.from_pretrained(folder, local_files_only=True)
    assert isinstance(model, Qwen3VLForConditionalGeneration)
    assert model.dtype == torch.float32
    assert not list(folder.glob("*.bin"))


def test_the_same_texts_and_seed_give_the_same_weights_and_another_seed_others(folder, tmp_path):
    build_tiny_qwen3_vl(tmp_path / "same", TEXTS, SMALL, seed=1)
    build_tiny_qwen3_vl(tmp_path / "other", TEXTS, SMALL, seed=2)
    assert weights_hash(tmp_path / "same") == weights_hash(folder)
    assert weights_hash(tmp_path / "other") != weights_hash(folder)
    assert (tmp_path / "same" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_special_tokens_are_single_ids_and_texts_come_back_whole(folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for token in SPECIAL:
        assert tokenizer(token, add_special_tokens=False)["input_ids"] == [tokenizer.convert_tokens_to_ids(token)]
    for text in ("Is it?  No – 骨.\n", '{"bbox":[1,22,333,4444]}', "<|im_end|>a"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


def test_digits_are_single_tokens_and_the_fixed_parts_of_an_answer_one_each(tiny):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny, local_files_only=True)
    assert len(tokenizer("20482", add_special_tokens=False)["input_ids"]) == 5
    text = '{"task":"grounding","region":"head","boxes":[{"view":"ANT","bbox":[1,2,3,4]}]}'
    pieces = [tokenizer.decode([i]) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert pieces[0] == '{"task":"grounding","region":"'
    assert pieces[-1] == "]}]}"
    assert '","boxes":[{"view":"' in pieces


def test_the_fixed_parts_of_a_volume_answer_are_one_token_each():
    text = (
        '{"answer":"Frame 2: <bbx>[8,15,6,6]</bbx>; Frame 10: <bbx>[7,16,7,5]</bbx>","bboxes":[{"frame":2,"label":'
        '"Mass","bbox":[8,15,6,6]},{"frame":10,"label":"Mass","bbox":[7,16,7,5]}]}'
    )
    tokenizer = train_tokenizer([text, '{"answer":"A, C"}', "Which?\nA) Mass\nB) Edema"] * 5, 700, SGMRI_PIECES)
    pieces = [tokenizer.decode([i]) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert "".join(pieces) == text
    for part in ('{"answer":"', "Frame ", ": <bbx>[", "]</bbx>; Frame ", '","bboxes":[{"frame":', ',"label":"', "]}]}"):
        assert part in pieces
    assert all(len(piece) == 1 for piece in pieces if any(character.isdigit() for character in piece))
    options = tokenizer("Which?\nA) Mass\nB) Edema", add_special_tokens=False)["input_ids"]
    assert [tokenizer.decode([i]) for i in options][2:] == ["\nA) ", "Mass", "\nB) ", "Edema"]
