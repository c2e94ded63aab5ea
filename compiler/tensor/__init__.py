"""Tensor expressions, schedules and loop nests: operators declared once, arranged per target."""

from tilewright.compiler.tensor.build import (
    all_of,
    call,
    cast,
    clip,
    constant,
    equal,
    maximum,
    minimum,
    not_equal,
    parameter,
    reduce_max,
    reduce_min,
    reduce_sum,
    round_shift,
    select,
)
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Axis, Expr, ExpressionError, Tensor
from tilewright.compiler.tensor.interpreter import ExecutionError, interpret
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.lower import lower, lowering_stages
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.primitives import ScheduleError, trace_from_json, trace_to_json
from tilewright.compiler.tensor.printing import format_expression, format_nest, format_tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind, LoopNest

__all__ = [
    "Axis",
    "ExecutionError",
    "Expr",
    "ExpressionError",
    "Function",
    "Intrinsic",
    "LoopKind",
    "LoopNest",
    "ScalarType",
    "Schedule",
    "ScheduleError",
    "Tensor",
    "all_of",
    "call",
    "cast",
    "clip",
    "compute",
    "constant",
    "equal",
    "format_expression",
    "format_nest",
    "format_tensor",
    "interpret",
    "lower",
    "lowering_stages",
    "maximum",
    "minimum",
    "not_equal",
    "parameter",
    "placeholder",
    "reduce_axis",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "round_shift",
    "select",
    "trace_from_json",
    "trace_to_json",
]
