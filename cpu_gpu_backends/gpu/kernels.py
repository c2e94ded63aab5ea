"""Kernels: what one launch on a GPU does, as statements of one thread."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Expr, Load, Tensor, Var
from tilewright.compiler.tensor.statements import IntrinsicCall, LoopKind
from tilewright.compiler.tensor.traversal import nodes
from tilewright.isa.errors import CompileError

#: The axes of a grid of blocks and of the threads of a block, the fastest one first.
BLOCK_AXES = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)
THREAD_AXES = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)


class KernelError(CompileError):
    """A loop nest cannot be carried out by the blocks and threads of a kernel."""


class Memory(Enum):
    """Where a tensor lies that is no parameter of the kernel."""

    #: One copy for the threads of a block.
    SHARED = "shared"
    #: One copy for each thread: registers, as far as indices are known.
    PRIVATE = "private"
    #: Spread over the threads of a warp; only matrix instructions see its elements.
    FRAGMENT = "fragment"


class Repetition(Enum):
    """How a loop within a thread is carried out."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    #: Written out, with neighbouring elements loaded and stored together.
    VECTOR = "vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """`body` for every value of `var` from 0 to ``extent - 1``."""

    var: Var
    extent: int
    repetition: Repetition = Repetition.SERIAL
    body: "KernelStatement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`body` where `condition` holds."""

    condition: Expr
    body: "KernelStatement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Sets one element of `tensor`."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare:
    """`tensor` exists in the thread's own registers while `body` runs."""

    tensor: Tensor
    memory: Memory
    body: "KernelStatement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """An intrinsic that a thread, or for fragments a warp of threads, carries out at once."""

    call: IntrinsicCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """All threads of the block meet; what they wrote to shared memory is seen by all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Copies to shared memory in `body` may arrive later: at the `Arrive` behind the next fetch."""

    body: "KernelStatement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrive:
    """The thread waits until all its fetches but the last have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """Statements one after the other."""

    statements: tuple["KernelStatement", ...]


KernelStatement: TypeAlias = (
    Loop | Guard | Assign | Declare | Together | Barrier | Fetch | Arrive | Sequence
)
Leaf: TypeAlias = Assign | Together


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A buffer that a kernel takes."""

    tensor: Tensor
    written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One launch: every thread of every block runs `body`.

    Attributes
    ----------
    parameters
        Buffers, in the order in which the kernel takes them.
    grid, block
        Extents of the block axes and of the thread axes: x, y, z.
    shared
        What lies in the block's memory.
    """

    name: str
    parameters: tuple[Parameter, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: tuple[Tensor, ...]
    body: KernelStatement

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    @property
    def shared_bytes(self) -> int:
        """Bytes of the block's memory, each tensor on a boundary of `SHARED_ALIGNMENT`."""
        sizes = (prod(tensor.shape) * tensor.dtype.numpy.itemsize for tensor in self.shared)
        return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in sizes)


#: Bytes: where tensors in shared memory begin, so that the widest vectors can be moved.
SHARED_ALIGNMENT = 16


def in_sequence(*statements: KernelStatement) -> KernelStatement:
    """Return `statements` one after the other, without nested sequences."""
    flat: list[KernelStatement] = []
    for statement in statements:
        flat += statement.statements if isinstance(statement, Sequence) else (statement,)
    return flat[0] if len(flat) == 1 else Sequence(statements=tuple(flat))


def walk(statement: KernelStatement) -> Iterator[KernelStatement]:
    """Iterate over `statement` and everything in it, outermost first."""
    yield statement
    match statement:
        case Loop() | Guard() | Declare() | Fetch():
            yield from walk(statement.body)
        case Sequence():
            for part in statement.statements:
                yield from walk(part)
        case Assign() | Together() | Barrier() | Arrive():
            pass
        case _:
            assert_never(statement)


def leaves(statement: KernelStatement) -> Iterator[Leaf]:
    """Iterate over everything in `statement` that writes."""
    return (part for part in walk(statement) if isinstance(part, Assign | Together))


def guards_of(statement: KernelStatement) -> Iterator[Expr]:
    """Iterate over the conditions of all guards in `statement`."""
    return (part.condition for part in walk(statement) if isinstance(part, Guard))


def written(leaf: Leaf) -> Tensor:
    """Return the tensor that `leaf` writes."""
    return leaf.tensor if isinstance(leaf, Assign) else leaf.call.output.tensor


def operands(leaf: Leaf) -> tuple[Expr, ...]:
    """Return all expressions in `leaf`."""
    if isinstance(leaf, Assign):
        return (*leaf.indices, leaf.value)
    call = leaf.call
    offsets = (offset for region in (call.output, *call.inputs) for offset in region.offsets)
    first = () if call.first is None else (call.first,)
    return (*offsets, *call.extents, *call.parameters, *first)


def read(leaf: Leaf) -> tuple[Tensor, ...]:
    """Return the tensors that `leaf` reads, each once."""
    found = [
        node.tensor for expr in operands(leaf) for node in nodes(expr) if isinstance(node, Load)
    ]
    if isinstance(leaf, Together):
        found += [region.tensor for region in leaf.call.inputs]
        found += [] if leaf.call.first is None else [leaf.call.output.tensor]
    return tuple(dict.fromkeys(found))
