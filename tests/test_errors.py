"""The one sentence that an error of TensorFlow's is cut down to."""

import pytest

from components.errors import first_line

# As tensorflow-tpu 2.19.1 says that there is no TPU.
NO_TPU = """Graph execution error:

Detected at node disconnect_tpu_host/_1 defined at (most recent call last):
<stack traces unavailable>
RET_CHECK failure (learning/45eac/google/xla/tpu_node_interfaces.cc:432) *platform
\t [[{{node disconnect_tpu_host/_1}}]] [Op:__inference__tpu_init_fn_4]"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No such file\nand a page more", "No such file"),
        (NO_TPU, "RET_CHECK failure (learning/45eac/google/xla/tpu_node_interfaces.cc:432) *platform"),
        ("Graph execution error:\n", "ValueError"),
        ("", "ValueError"),
    ],
)
def test_the_first_line_that_says_something(text, expected):
    assert first_line(ValueError(text)) == expected
