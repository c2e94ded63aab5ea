"""Loop nests: a closed set of statements over tensors held in named memories."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilewright.compiler.tensor.expressions import Expr, Tensor, Var
from tilewright.compiler.tensor.intrinsics import Intrinsic


class LoopKind(Enum):
    """How the iterations of a loop are carried out; the value is how it is written.

    The iterations of every kind but `SERIAL` and `UNROLL` are independent of each other. Loops of
    the block and thread kinds are the axes of a kernel's launch; a thread loop within a kernel
    stands for all its threads, which meet at a barrier before and after each statement that fills
    a tensor in scope ``shared``.
    """

    SERIAL = "serial"
    UNROLL = "unroll"
    VECTORIZE = "vectorize"
    PARALLEL = "parallel"
    VIRTUAL_THREAD = "virtual_thread"
    BLOCK_X = "block.x"
    BLOCK_Y = "block.y"
    BLOCK_Z = "block.z"
    THREAD_X = "thread.x"
    THREAD_Y = "thread.y"
    THREAD_Z = "thread.z"

    @property
    def is_ordered(self) -> bool:
        """Whether an iteration may depend on those before it."""
        return self in (LoopKind.SERIAL, LoopKind.UNROLL)

    @property
    def is_block(self) -> bool:
        """Whether this is an axis of the grid of blocks."""
        return self in (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)

    @property
    def is_thread(self) -> bool:
        """Whether this is an axis of the threads of a block."""
        return self in (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)


@dataclass(frozen=True, slots=True, kw_only=True)
class For:
    """`body` for every value of `var` from 0 to ``extent - 1``."""

    var: Var
    extent: int
    kind: LoopKind = LoopKind.SERIAL
    body: "Statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class If:
    """`body` where `condition` holds."""

    condition: Expr
    body: "Statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Sets one element of `tensor`; `value` is evaluated first and may read that element."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate:
    """`tensor` exists, with undefined content, while `body` runs.

    With `double_buffer` a backend keeps two copies in turn, so that one can be filled while the
    other is in use; what is computed does not change.
    """

    tensor: Tensor
    double_buffer: bool = False
    body: "Statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seq:
    """Statements one after the other."""

    statements: tuple["Statement", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The part of a tensor that one operand of an intrinsic covers.

    Element ``(i, j, ...)`` of the operand is the element of `tensor` at `offsets`, with ``i`` added
    along axis ``axes[0]``, ``j`` along ``axes[1]`` and so on.
    """

    tensor: Tensor
    offsets: tuple[Expr, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrinsicCall:
    """One use of an intrinsic: its pattern, applied to regions.

    Attributes
    ----------
    intrinsic
        What is done.
    extents
        Extents of the pattern's axes, then of its reduce axes: constants, except where a guard
        shortens a flexible axis. Where one is zero or less, nothing is done along that axis.
    output, inputs
        Regions of the pattern's result and of its placeholders, in the order of declaration.
    parameters
        Values of the pattern's open scalars, in the order of declaration.
    first
        For a reduction, where it holds the result is overwritten, elsewhere it is combined with
        what the output holds. None for a pattern that is no reduction.
    """

    intrinsic: Intrinsic
    extents: tuple[Expr, ...]
    output: Region
    inputs: tuple[Region, ...]
    parameters: tuple[Expr, ...]
    first: Expr | None


Statement: TypeAlias = For | If | Store | Allocate | Seq | IntrinsicCall


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNest:
    """A statement that computes `outputs` from `inputs`.

    Attributes
    ----------
    ahead
        Names of inputs, and how many elements behind each element read a processor fetches more.
        A hint: what is computed does not change.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    body: Statement
    ahead: tuple[tuple[str, int], ...] = ()


def sequence(*statements: Statement) -> Statement:
    """Return `statements` one after the other, without nested sequences."""
    flat: list[Statement] = []
    for statement in statements:
        flat += statement.statements if isinstance(statement, Seq) else (statement,)
    return flat[0] if len(flat) == 1 else Seq(statements=tuple(flat))
