import json
from collections.abc import Callable
from pathlib import Path

import pytest

from components.prepare.settings import PrepareSettings
from pipelines.config import Data

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "##ly", "[", "]", "se", "##p", ".", "e"]


@pytest.fixture
def settings() -> Callable[..., PrepareSettings]:
    """Settings with the defaults of a run's configuration, changed by keyword."""

    def make(source: str, *, pretrained: str = "", **changed: object) -> PrepareSettings:
        return PrepareSettings(**Data(source=source, **changed).model_dump(), pretrained=pretrained)  # type: ignore[arg-type]

    return make


@pytest.fixture
def tiny_bert(tmp_path: Path) -> str:
    """A folder with the tokenizer of a BERT that knows 14 tokens and takes 16 of them."""
    folder = tmp_path / "tiny_bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    config = {"model_type": "bert", "vocab_size": len(VOCABULARY), "max_position_embeddings": 16}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)
