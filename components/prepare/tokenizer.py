"""BERT's WordPiece tokenizer: the one kind that a served model can repeat inside its graph, with tensorflow-text."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components import files
from components.dataset.manifest import VOCABULARY, Feature, Tokenizer
from components.errors import ModelError, first_line
from components.models.pretrained import locate

# What a BERT encoder takes; another name would be an input that serving can't compute.
FEATURES = ("input_ids", "attention_mask", "token_type_ids")
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class WordPieceTokenizer:
    """Turns texts into token ids of one fixed length.

    Args:
        pretrained: Where the model is that the tokenizer belongs to: see `pretrained.locate`.
        max_length: Tokens of a text: longer ones are cut, shorter ones padded.

    Raises:
        ModelError: if it can't be loaded, is no BERT WordPiece tokenizer, or the model takes fewer tokens.

    Example:
        tokenizer = WordPieceTokenizer("sample://minilm", max_length=64)
        tokenizer(["a text"])["input_ids"]  # int32 [1, 64]
    """

    def __init__(self, pretrained: str, *, max_length: int) -> None:
        self._pretrained, self._max_length = pretrained, max_length
        folder = locate(pretrained)
        self._tokenizer = _load(pretrained, folder)
        self._parts: dict[str, Any] = json.loads(self._tokenizer.backend_tokenizer.to_str())
        self._vocabulary = sorted(self._tokenizer.get_vocab(), key=self._tokenizer.get_vocab().__getitem__)
        self._check_kind()
        try:
            self._check_model(files.read_json(files.join(folder, "config.json")))
        except (ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"The config.json of model.pretrained {pretrained!r} is broken: {error}") from error

    @property
    def features(self) -> dict[str, Feature]:
        """What a text becomes: int32 features of shape `[max_length]`."""
        names = [name for name in FEATURES if name in self._tokenizer.model_input_names]
        return {name: Feature("int32", (self._max_length,)) for name in names}

    def __call__(self, texts: Sequence[str]) -> dict[str, npt.NDArray[np.int32]]:
        """Returns the features of texts, each int32 `[len(texts), max_length]`."""
        encoded = self._tokenizer(
            list(texts), max_length=self._max_length, truncation=True, padding="max_length", return_tensors="np"
        )
        return {name: encoded[name].astype(np.int32) for name in self.features}

    def padding(self, texts: Sequence[str]) -> float:
        """Returns the share of texts' `[len(texts), max_length]` tokens that are padding, from 0 to 1."""
        encoded = self._tokenizer(list(texts), max_length=self._max_length, truncation=True)
        return 1 - sum(map(len, encoded["input_ids"])) / (len(texts) * self._max_length)

    def save(self, folder: str) -> Tokenizer:
        """Writes the vocabulary, a token a line in the order of the ids, and returns the manifest's entry."""
        content = "".join(f"{token}\n" for token in self._vocabulary).encode("utf-8")
        files.write_bytes(files.join(folder, VOCABULARY), content)
        return Tokenizer(
            name=self._pretrained,
            vocabulary_sha256=hashlib.sha256(content).hexdigest(),
            max_length=self._max_length,
            lower_case=self._parts["normalizer"]["lowercase"],
        )

    def _check_kind(self) -> None:
        """Refuses whatever tensorflow-text's BERT tokenizer does not do."""
        model, normalizer = self._parts["model"], self._parts["normalizer"] or {}
        ids = sorted(self._tokenizer.get_vocab().values())
        for wrong, why in (
            (model["type"] != "WordPiece", f"it is of the kind {model['type']}"),
            (normalizer.get("type") != "BertNormalizer", "it has another normalizer"),
            ((self._parts["pre_tokenizer"] or {}).get("type") != "BertPreTokenizer", "it splits words otherwise"),
            (model.get("continuing_subword_prefix") != "##", "its word pieces don't go on with ##"),
            (normalizer.get("strip_accents") not in (None, normalizer.get("lowercase")), "it strips accents otherwise"),
            (normalizer.get("handle_chinese_chars") is False, "it does not split Chinese characters"),
            (model.get("max_input_chars_per_word", 100) != 100, "its longest word is not of 100 characters"),
            (not set(SPECIAL_TOKENS) <= set(self._vocabulary), f"it lacks one of {' '.join(SPECIAL_TOKENS)}"),
            (bool(set(self._tokenizer.get_added_vocab()) - set(SPECIAL_TOKENS)), "it has added tokens"),
            (ids != list(range(len(ids))), "its token ids have gaps"),
            (not set(self._tokenizer.model_input_names) <= set(FEATURES), "it makes other inputs than BERT's"),
            (
                self._tokenizer.padding_side != "right" or self._tokenizer.truncation_side != "right",
                "it pads on the left",
            ),
        ):
            if wrong:
                raise _no_word_piece(self._pretrained, why)

    def _check_model(self, config: dict[str, Any]) -> None:
        limit = config.get("max_position_embeddings", self._max_length)
        if self._max_length > limit:
            raise ModelError(
                f"data.max_length is {self._max_length}, model.pretrained {self._pretrained!r} takes {limit} tokens: "
                f"set data.max_length to {limit} or less."
            )
        embeddings = config.get("vocab_size", len(self._vocabulary))
        if len(self._vocabulary) > embeddings:  # an id beyond the embeddings reads whatever lies there, without a word
            raise ModelError(
                f"The tokenizer of model.pretrained {self._pretrained!r} has {len(self._vocabulary):,} tokens, its "
                f"config.json says vocab_size {embeddings:,}: they don't belong together."
            )


def _load(pretrained: str, folder: str) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not any(Path(folder, name).exists() for name in ("tokenizer.json", "vocab.txt")):
        raise ModelError(
            f"model.pretrained {pretrained!r} has neither vocab.txt nor tokenizer.json, so no BERT tokenizer."
        )
    try:
        # split_special_tokens: a text that says [SEP] is a text about [SEP], as it is for the served model.
        tokenizer = AutoTokenizer.from_pretrained(
            folder, use_fast=True, local_files_only=True, split_special_tokens=True
        )
    except Exception as error:  # the tokenizers library raises plain Exception on a broken file
        reason = first_line(error)
        raise ModelError(f"The tokenizer of model.pretrained {pretrained!r} can't be loaded: {reason}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise _no_word_piece(pretrained, f"it is a {type(tokenizer).__name__}")
    return tokenizer


def _no_word_piece(pretrained: str, why: str) -> ModelError:
    return ModelError(
        f"The tokenizer of model.pretrained {pretrained!r} is no BERT WordPiece tokenizer ({why}), and only such a one "
        "can run inside the served model; take a BERT, DistilBERT or MiniLM model."
    )
