"""The functions that a served model offers: raw input in, class names and probabilities out."""

from typing import Any

import tensorflow as tf

from components import files
from components.dataset import reader
from components.dataset.manifest import VOCABULARY, Tokenizer
from components.exported import SERVING
from components.models.saved import ModelDescription

TENSORS = "tensors"


_UNKNOWN = "[UNK]"
# Characters that BERT's basic tokenizer makes words of their own: punctuation, and its ranges of CJK ideographs.
_ALONE = (
    r"[!-/:-@\[-`{-~\p{P}\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
# Characters of the longest word that WordPiece splits (BERT's `max_input_chars_per_word`); longer ones are unknown.
_LONGEST_WORD = 100


class ServedModel(tf.Module):
    """A classifier with its preprocessing, as it is saved.

    Two signatures: `serving_default` takes raw input (uint8 images, or strings), `tensors` takes the features of a
    prepared data set; both return `class_name` (string `[batch]`), `probability` (float32 `[batch]`, of that class),
    `probabilities` (float32 `[batch, classes]`) and `class_names` (string `[classes]`, in the order of the columns).

    Args:
        model: Takes a dict of features, returns float32 logits.
        description: The model's `model.json`.
        folder: The model's folder, which holds the tokenizer's vocabulary.
    """

    def __init__(self, model: Any, description: ModelDescription, folder: str) -> None:
        super().__init__()
        self.model = model
        self._names = tf.constant(description.class_names)
        self._features = description.features
        tokenizer = description.tokenizer
        self._tokenize = InGraphTokenizer(tokenizer, set(description.features), folder) if tokenizer else None

    def signatures(self) -> dict[str, Any]:
        """Returns the concrete functions to save, by signature name."""
        stored = {
            name: tf.TensorSpec([None, *feature.shape], feature.dtype, name) for name, feature in self._features.items()
        }
        tensors = tf.function(lambda **features: self._classify(features)).get_concrete_function(**stored)
        if self._tokenize is None:
            return {SERVING: tensors, TENSORS: tensors}
        texts = tf.TensorSpec([None], tf.string, "text")
        tokenize = self._tokenize
        raw = tf.function(lambda **raw: self._classify(tokenize(raw["text"]))).get_concrete_function(text=texts)
        return {SERVING: raw, TENSORS: tensors}

    def _classify(self, features: dict[str, Any]) -> dict[str, Any]:
        probabilities = tf.nn.softmax(self.model(reader.to_model_input(features), training=False))
        return {
            "class_name": tf.gather(self._names, tf.argmax(probabilities, axis=-1)),
            "probability": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
            "class_names": self._names,
        }


class InGraphTokenizer(tf.Module):
    """BERT's WordPiece tokenizer as TensorFlow operations: strings in, the data set's features out.

    tensorflow-text's own lower-casing folds more than BERT's does (`½`, `ß`, `™`, full-width letters), so the text is
    cleaned, lower-cased and stripped of accents here, as `BasicTokenizer` of the BERT paper's code does it, and only
    split by tensorflow-text. Of 130,000 code points put between two words, 568 of rare scripts still split otherwise.

    Args:
        tokenizer: The data set's tokenizer.
        names: The features to make.
        folder: The model's folder, with `tokenizer/vocab.txt`.
    """

    def __init__(self, tokenizer: Tokenizer, names: set[str], folder: str) -> None:
        import tensorflow_text as tf_text

        super().__init__()
        content = files.read_bytes(files.join(folder, VOCABULARY)).decode("utf-8")
        vocabulary = content.rstrip("\n").split("\n")
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(vocabulary, list(range(len(vocabulary))), tf.string, tf.int64), -1
        )
        self._length, self._names, self._lower_case = tokenizer.max_length, names, tokenizer.lower_case
        self._pieces = tf_text.WordpieceTokenizer(
            self._table, unknown_token=_UNKNOWN, max_bytes_per_word=4 * _LONGEST_WORD, token_out_type=tf.int64
        )
        ids = {token: index for index, token in enumerate(vocabulary)}
        self._cls, self._sep, self._pad = ids["[CLS]"], ids["[SEP]"], ids["[PAD]"]

    def __call__(self, text: Any) -> dict[str, Any]:
        """Returns int32 features `[batch, max_length]` of strings `[batch]`."""
        import tensorflow_text as tf_text

        words = tf_text.regex_split(self._clean(text), rf"\s+|{_ALONE}", _ALONE)
        too_long = tf.strings.length(words.flat_values, unit="UTF8_CHAR") > _LONGEST_WORD
        words = words.with_flat_values(tf.where(too_long, _UNKNOWN, words.flat_values))
        pieces = self._pieces.tokenize(words).merge_dims(-2, -1)[:, : self._length - 2]
        ids, types = tf_text.combine_segments([pieces], self._cls, self._sep)
        ids = tf.cast(ids, tf.int32)
        features = {
            "input_ids": ids.to_tensor(self._pad, shape=[None, self._length]),
            "attention_mask": tf.ones_like(ids).to_tensor(0, shape=[None, self._length]),
            "token_type_ids": tf.cast(types, tf.int32).to_tensor(0, shape=[None, self._length]),
        }
        return {name: features[name] for name in self._names}

    def _clean(self, text: Any) -> Any:
        """Drops control characters, makes every white space a blank, and lower-cases and strips accents if asked."""
        import tensorflow_text as tf_text

        text = tf.strings.regex_replace(text, r"[\x00\x{FFFD}]|[^\P{C}\t\n\r]", "")
        text = tf.strings.regex_replace(text, r"[\pZ\t\n\r]", " ")
        if not self._lower_case:
            return text
        text = tf_text.normalize_utf8(tf.strings.lower(text, encoding="utf-8"), "NFD")
        return tf.strings.regex_replace(text, r"\p{Mn}", "")
