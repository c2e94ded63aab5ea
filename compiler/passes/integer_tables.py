"""The tables that integer operators read: exponentials, and functions of one int8 value."""

from collections.abc import Callable

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.operators import INT8_MAX, INT8_MIN, FloatSoftmax
from tilewright.compiler.passes.integer_forms import Quantisation

#: The largest entry of a table of exponentials.
EXPONENTIAL_ONE = 1 << 30


def softmax_table(op: FloatSoftmax, x: Quantisation) -> Array:
    """Return the exponentials of all differences between two int8 values, int32 ``[256]``."""
    differences = np.arange(256) * (x.scale * op.beta)
    table: Array = np.rint(EXPONENTIAL_ONE * np.exp(-differences)).astype(np.int32)
    return table


def lookup_table(
    function: Callable[[Array], Array], x: Quantisation, target: Quantisation
) -> Array:
    """Return a function of all int8 values, int8 ``[256]``, computed in float64.

    Where the function is not defined, as the logarithm of a negative number, the entry is zero.
    """
    values = (np.arange(INT8_MIN, INT8_MAX + 1) - x.zero_point) * x.scale
    results = function(values.astype(np.float64))
    defined = np.nan_to_num(results, nan=0.0, posinf=np.inf, neginf=-np.inf)
    steps = np.rint(defined / target.scale) + target.zero_point
    table: Array = np.clip(steps, INT8_MIN, INT8_MAX).astype(np.int8)
    return table
