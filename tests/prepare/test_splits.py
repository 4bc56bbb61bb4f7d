import hashlib
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import ConfigError
from components.prepare.settings import PrepareSettings
from components.prepare.splits import choose_split
from pipelines.config import Data

CONTENTS = st.binary(max_size=40)
FRACTIONS = st.floats(min_value=0.01, max_value=0.99)


def make(**changed: object) -> PrepareSettings:
    return PrepareSettings(**Data(source="x.csv", **changed).model_dump(), pretrained="")  # type: ignore[arg-type]


def test_the_split_of_a_text_never_changes_between_releases() -> None:
    # A change here would move examples between the splits of every user's data.
    settings = make(test_fraction=0.3, validation_fraction=0.3, sample_fraction=0.8, split_seed=7)
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight")
    found = [choose_split(word.encode(), None, settings) for word in words]
    assert found == ["train", "train", "test", "train", "validation", None, None, None]


def test_shares_are_as_asked_for() -> None:
    settings = make(sample_fraction=0.5, test_fraction=0.2, validation_fraction=0.25)
    counts = Counter(choose_split(str(number).encode(), None, settings) for number in range(20_000))
    # Half is left out; of the rest a fifth is the test, and of what remains a quarter is for validation. Five sigma.
    for split, share in ((None, 0.5), ("test", 0.1), ("validation", 0.1), ("train", 0.3)):
        assert abs(counts[split] - 20_000 * share) < 5 * (20_000 * share * (1 - share)) ** 0.5


def test_a_given_test_split_is_kept_and_a_given_training_split_is_divided() -> None:
    settings = make(validation_fraction=0.25)
    counts = Counter(choose_split(str(number).encode(), "train", settings) for number in range(4_000))
    assert set(counts) == {"train", "validation"}
    assert abs(counts["validation"] - 1_000) < 5 * (4_000 * 0.25 * 0.75) ** 0.5
    assert {choose_split(str(number).encode(), "test", settings) for number in range(100)} == {"test"}


@given(content=CONTENTS, small=FRACTIONS, large=FRACTIONS, seed=st.integers(0, 2**31 - 1))
def test_a_smaller_sample_is_part_of_a_larger_one_and_in_the_same_splits(
    content: bytes, small: float, large: float, seed: int
) -> None:
    small, large = sorted((small, large))
    in_small = choose_split(content, None, make(sample_fraction=small, split_seed=seed))
    in_large = choose_split(content, None, make(sample_fraction=large, split_seed=seed))
    whole = choose_split(content, None, make(split_seed=seed))
    assert whole is not None
    assert in_small in (None, in_large)
    assert in_large in (None, whole)


@given(content=CONTENTS, small=FRACTIONS, large=FRACTIONS)
def test_a_larger_test_fraction_only_adds_to_the_test(content: bytes, small: float, large: float) -> None:
    small, large = sorted((small, large))
    if choose_split(content, None, make(test_fraction=small)) == "test":
        assert choose_split(content, None, make(test_fraction=large)) == "test"


def test_the_seed_gives_another_split() -> None:
    contents = [hashlib.sha256(bytes([number])).digest() for number in range(200)]
    first, second = ([choose_split(c, None, make(split_seed=seed)) for c in contents] for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("sample_fraction", 0.0, "above 0, up to 1"),
        ("validation_fraction", 1.0, "between 0 and 1"),
        ("test_fraction", float("nan"), "between 0 and 1"),
        ("empty_rows", "keep", "drop or error"),
        ("split_seed", -1, "from 0"),
        ("max_length", 0, "at least 1"),
        ("label_column", " ", "a name"),
    ],
)
def test_settings_that_passed_no_schema_are_checked(
    settings: Callable[..., PrepareSettings], name: str, value: object, expected: str
) -> None:
    good = Data(source="x.csv").model_dump() | {"pretrained": ""}
    with pytest.raises(ConfigError, match=f"data.{name} is .*, expected {expected}"):
        PrepareSettings(**(good | {name: value}))
