"""Decides by content alone which split an example belongs to, and whether it is in the sample.

Equal contents land in the same split, whatever the order or number of files, so no text is both trained and tested on.
"""

import hashlib
from typing import Literal

from components.prepare.settings import PrepareSettings
from components.prepare.source import GivenSplit

SplitName = Literal["train", "validation", "test"]


def choose_split(content: bytes, given: GivenSplit | None, settings: PrepareSettings) -> SplitName | None:
    """Returns the split of an example, or None if `sample_fraction` leaves it out.

    Args:
        content: The text's or image's bytes.
        given: The split where the source decides: then `train` is divided into train and validation.
        settings: The fractions, and the seed that keys the hash.
    """
    key = settings.split_seed.to_bytes(8, "big")
    digest = hashlib.blake2b(content, digest_size=16, key=key).digest()
    # Two parts of the digest, so that a smaller sample has the same proportions.
    if _fraction(digest[8:]) >= settings.sample_fraction:
        return None
    position = _fraction(digest[:8])
    if given == "test":
        return "test"
    if given is None:
        if position < settings.test_fraction:
            return "test"
        position = (position - settings.test_fraction) / (1 - settings.test_fraction)
    return "validation" if position < settings.validation_fraction else "train"


def _fraction(digest: bytes) -> float:
    """Returns eight bytes as a number in [0, 1): their first 53 bits, which a float holds exactly."""
    return (int.from_bytes(digest, "big") >> 11) / 2.0**53
