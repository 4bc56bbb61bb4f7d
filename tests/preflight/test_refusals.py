"""The compiler's refusals, in libtpu 0.0.10's own words."""

import pytest

from components.errors import ProgramError
from components.preflight.compiler import CompilerError, OutOfMemoryError, _refusal

SEVERAL = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    """Used 19.60G of 15.75G hbm. Exceeded hbm capacity by 3.85G.

Total hbm usage >= 19.85G:

  Largest program allocations in hbm:

  1. Size: 9.00G
     Operator: op_name="gradient_tape/image_classifier/dense/MatMul/MatMul" source_file="ops.py" source_line=1200
     Shape: f32[16384,147456]{0,1:T(8,128)}
"""
)
ONE = (
    "RESOURCE_EXHAUSTED: Allocation (size=19327352832) would exceed memory (size=17179869184) :: #allocation238 "
    "[shape = 'f32[32768,147456]{0,1:T(8,128)}', space=hbm]"
)
EARLY = (
    "RESOURCE_EXHAUSTED: Aborting compilation early because it's unlikely to have enough device memory. "
    "Requires 100.00G, has 7.11G available"
)


@pytest.mark.parametrize(
    ("message", "needed", "largest"),
    [
        (SEVERAL, 19.60 * 2**30, "f32[16384,147456] of gradient_tape/image_classifier/dense/MatMul/MatMul, 9.00GB"),
        (ONE, 19327352832, "f32[32768,147456]"),
        (EARLY, 100 * 2**30, ""),
    ],
)
def test_too_little_memory(message, needed, largest):
    error = _refusal(message)
    assert isinstance(error, OutOfMemoryError)
    assert (error.needed, error.largest) == (round(needed), largest)


def test_memory_on_the_chip_is_not_the_batchs_fault():
    error = _refusal("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 130.25M of 128.00M vmem.")
    assert type(error) is ProgramError
    assert "memory space vmem" in str(error)


def test_another_refusal_is_said_with_its_op():
    error = _refusal(
        'INVALID_ARGUMENT: Custom emitter for Foo not found\n %x = f32[] y(), metadata={op_name="model/c/Y"}'
    )
    assert type(error) is ProgramError
    assert str(error).endswith("Custom emitter for Foo not found of model/c/Y.")


def test_a_failing_environment_is_no_verdict():
    assert type(_refusal("INTERNAL: Failed to create /tmp/tpu_logs: No space left on device")) is CompilerError
