import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from components.dataset.manifest import Feature
from components.errors import ModelError
from components.prepare.tokenizer import WordPieceTokenizer


def test_tokens_worked_out_by_hand(tiny_bert: str) -> None:
    tokenizer = WordPieceTokenizer(tiny_bert, max_length=8)
    assert tokenizer.features == dict.fromkeys(
        ("input_ids", "attention_mask", "token_type_ids"), Feature("int32", (8,))
    )
    encoded = tokenizer(["Goodly BAD.", "good nonsense", "bad " * 9, "é"])
    expected = [
        [2, 5, 7, 6, 12, 3, 0, 0],  # [CLS] good ##ly bad . [SEP]
        [2, 5, 1, 3, 0, 0, 0, 0],  # an unknown word
        [2, 6, 6, 6, 6, 6, 6, 3],  # cut to the length
        [2, 13, 3, 0, 0, 0, 0, 0],  # its accent is stripped
    ]
    np.testing.assert_array_equal(encoded["input_ids"], expected)
    np.testing.assert_array_equal(encoded["attention_mask"], np.array(expected) != 0)
    np.testing.assert_array_equal(encoded["token_type_ids"], np.zeros((4, 8)))
    assert {column.dtype for column in encoded.values()} == {np.dtype(np.int32)}


def test_a_text_about_special_tokens_is_a_text(tiny_bert: str) -> None:
    ids = WordPieceTokenizer(tiny_bert, max_length=8)(["[SEP] good"])["input_ids"]
    np.testing.assert_array_equal(ids, [[2, 8, 10, 11, 9, 5, 3, 0]])  # [CLS] [ se ##p ] good [SEP]


def test_vocabulary_is_saved_in_the_order_of_the_ids(tiny_bert: str, tmp_path: Path) -> None:
    saved = WordPieceTokenizer(tiny_bert, max_length=8).save(str(tmp_path / "data"))
    content = (tmp_path / "data" / "tokenizer" / "vocab.txt").read_bytes()
    assert content == Path(tiny_bert, "vocab.txt").read_bytes()
    assert saved.vocabulary_sha256 == hashlib.sha256(content).hexdigest()
    assert (saved.name, saved.max_length, saved.lower_case) == (tiny_bert, 8, True)


def change(folder: str, name: str, **fields: object) -> None:
    path = Path(folder, name)
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | fields))


def test_cased_model(tiny_bert: str, tmp_path: Path) -> None:
    change(tiny_bert, "tokenizer_config.json", do_lower_case=False)
    tokenizer = WordPieceTokenizer(tiny_bert, max_length=8)
    np.testing.assert_array_equal(tokenizer(["Good good"])["input_ids"], [[2, 1, 5, 3, 0, 0, 0, 0]])
    assert not tokenizer.save(str(tmp_path)).lower_case


def test_distilbert_has_no_token_types(tiny_bert: str) -> None:
    change(tiny_bert, "config.json", model_type="distilbert")
    assert list(WordPieceTokenizer(tiny_bert, max_length=8).features) == ["input_ids", "attention_mask"]


def test_more_tokens_than_the_model_takes(tiny_bert: str) -> None:
    WordPieceTokenizer(tiny_bert, max_length=16)
    with pytest.raises(
        ModelError, match=r"data.max_length is 17, .* takes 16 tokens: set data.max_length to 16 or less"
    ):
        WordPieceTokenizer(tiny_bert, max_length=17)


def test_a_vocabulary_larger_than_the_embeddings(tiny_bert: str) -> None:
    change(tiny_bert, "config.json", vocab_size=13)
    with pytest.raises(ModelError, match=r"has 14 tokens, its config.json says vocab_size 13"):
        WordPieceTokenizer(tiny_bert, max_length=8)


def test_byte_pair_tokenizer_is_refused(tiny_bert: str) -> None:
    from tokenizers import Tokenizer, models

    Path(tiny_bert, "vocab.txt").unlink()
    Tokenizer(models.BPE({"a": 0, "b": 1}, [])).save(str(Path(tiny_bert, "tokenizer.json")))
    change(tiny_bert, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    with pytest.raises(ModelError, match=r"no BERT WordPiece tokenizer \(it is of the kind BPE\)"):
        WordPieceTokenizer(tiny_bert, max_length=8)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"strip_accents": False}, "it strips accents otherwise"),
        ({"tokenize_chinese_chars": False}, "Chinese characters"),
    ],
)
def test_variants_that_tensorflow_text_does_not_do_are_refused(
    tiny_bert: str, setting: dict[str, bool], why: str
) -> None:
    change(tiny_bert, "tokenizer_config.json", **setting)
    with pytest.raises(ModelError, match=why):
        WordPieceTokenizer(tiny_bert, max_length=8)


def test_a_folder_without_a_tokenizer(tiny_bert: str) -> None:
    Path(tiny_bert, "vocab.txt").unlink()
    with pytest.raises(ModelError, match=r"has neither vocab.txt nor tokenizer.json"):
        WordPieceTokenizer(tiny_bert, max_length=8)
    Path(tiny_bert, "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"can't be loaded"):
        WordPieceTokenizer(tiny_bert, max_length=8)
