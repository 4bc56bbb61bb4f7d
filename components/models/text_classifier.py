"""A Hugging Face encoder (BERT and its kind) with a classification head."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from components.dataset.manifest import Feature
from components.errors import ModelError, first_line
from components.models import arguments
from components.models.pretrained import locate

# What the configurations of BERT, RoBERTa, DistilBERT and others call their rates of dropout.
_DROPOUT_RATES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
)
# Weights that a pretrained encoder may lack: those of the head, which is trained here.
_HEAD = ("classifier", "pooler")


class TextClassifier(tf_keras.Model):
    """Wraps a `TFAutoModelForSequenceClassification` so that it takes a dict and returns float32 logits."""

    def __init__(self, backbone: Any) -> None:
        super().__init__(name="text_classifier")
        self.backbone = backbone

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        """Returns float32 logits `[batch, num_classes]` for int32 token features `[batch, max_length]`."""
        return tf.cast(self.backbone(dict(inputs), training=training).logits, tf.float32)


def build(
    *,
    features: Mapping[str, Feature],
    num_classes: int,
    pretrained: str = "",
    config: Mapping[str, Any] | None = None,
    dropout: float | None = None,
) -> Any:
    """Builds a text classifier, from pretrained weights or (to restore a checkpoint) from its configuration alone.

    Args:
        features: int32 token features of shape `[max_length]`: `input_ids`, `attention_mask`, maybe `token_type_ids`.
        num_classes: Width of the logits.
        pretrained: Where the pretrained model is: see `pretrained.locate`. A classification head that it
            has must have `num_classes` classes.
        config: A Hugging Face configuration as a dict; the weights are then random.
        dropout: Rate of dropout everywhere in the encoder and before the head; the model's own by default.

    Returns:
        A `tf_keras.Model`: dict of int32 `[batch, max_length]` → float32 logits `[batch, num_classes]`.

    Raises:
        ModelError: if the model can't be loaded, or can't take `max_length` tokens.
    """
    if "input_ids" not in features:
        raise ModelError(f"text_classifier needs token features, the data set has {', '.join(features)}: is it text?")
    from transformers import AutoConfig, TFAutoModelForSequenceClassification
    from transformers.utils import logging

    if bool(pretrained) == (config is not None):
        raise ModelError("text_classifier needs model.pretrained (where to load the encoder from).")
    logging.set_verbosity_error()  # it warns that the head is new, which is the point
    folder = locate(pretrained) if pretrained else ""
    try:
        settings = AutoConfig.from_pretrained(folder) if folder else AutoConfig.for_model(**(config or {}))
    except Exception as error:
        raise ModelError(
            f"The config.json of {pretrained!r} is no model's that transformers knows: {first_line(error)}"
        ) from error
    settings.num_labels = num_classes
    if dropout is not None:
        rate = arguments.fraction("dropout", dropout)
        for name in _DROPOUT_RATES:
            if hasattr(settings, name):
                setattr(settings, name, rate)
    _check_length(features, settings)
    try:
        if not folder:
            return TextClassifier(TFAutoModelForSequenceClassification.from_config(settings))
        backbone, loading = TFAutoModelForSequenceClassification.from_pretrained(
            folder, config=settings, output_loading_info=True
        )
    except Exception as error:  # transformers and safetensors raise whatever they like on a broken file
        reason = first_line(error)
        raise ModelError(f"model.pretrained {pretrained!r} can't be loaded as a TensorFlow model: {reason}.") from error
    missing = [name for name in loading["missing_keys"] if not any(part in name for part in _HEAD)]
    if missing:
        raise ModelError(
            f"model.pretrained {pretrained!r} has no weights for {len(missing)} variables of the encoder, {missing[0]} "
            "first: they would start at random. Is it a model of the type that its config.json says?"
        )
    return TextClassifier(backbone)


def rebuild_arguments(model: Any) -> dict[str, Any]:
    """Returns the arguments with which `build` makes this model again, without its pretrained weights."""
    return {"config": model.backbone.config.to_diff_dict() | {"model_type": model.backbone.config.model_type}}


def _check_length(features: Mapping[str, Feature], settings: Any) -> None:
    (length,) = features["input_ids"].shape
    limit = getattr(settings, "max_position_embeddings", length)
    if length > limit:
        raise ModelError(
            f"The data set has {length} tokens an example, the model takes {limit}; lower data.max_length to that."
        )
