"""Numbers that describe loop nests to a cost model: work, traffic, registers, shares.

Traffic is estimated for caches of some sizes: what the outermost loop touches whose data fit is
read once, and again in each iteration of the loops around it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2, prod

from typing_extensions import assert_never

from tilewright.compiler.tensor.expansion import expand
from tilewright.compiler.tensor.expressions import Expr, Load, Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopKind,
    LoopNest,
    Seq,
    Statement,
    Store,
)
from tilewright.compiler.tensor.traversal import loads, nodes, variables

#: Scope of tensors that lie in memory; all others are in registers, or shared by a block.
_MEMORY = "global"
#: Bytes of the caches that traffic is estimated for.
_CACHES = (16 << 10, 256 << 10, 1 << 20, 8 << 20)
#: Lanes are counted as if all numbers had so many bytes.
_LANE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Access:
    """Elements of a tensor in memory, as one place of the code reads or writes them."""

    tensor: str
    item_bytes: int
    #: For each axis: its extent, and the variables of the index.
    axes: tuple[tuple[int, frozenset[str]], ...]

    def touched(self, ranging: Mapping[str, int]) -> int:
        """Return the bytes touched while some variables range over their extents."""
        return self.item_bytes * prod(
            min(extent, prod(ranging.get(name, 1) for name in names)) for extent, names in self.axes
        )

    @property
    def names(self) -> frozenset[str]:
        """All variables that the place depends on."""
        return frozenset[str]().union(*(names for _, names in self.axes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What a statement does each time it runs.

    Attributes
    ----------
    instructions
        Arithmetic, a vector of lanes counting once.
    accesses
        How often each place is read or written.
    ranging
        Extents of the loops within.
    traffic
        Bytes that come from beyond each cache.
    iterations
        Of loops that are not written out.
    written
        Instructions of the longest stretch without a loop.
    registers
        Vectors that all tensors in registers take.
    """

    instructions: float = 0
    accesses: Mapping[_Access, float]
    ranging: Mapping[str, int]
    traffic: tuple[float, ...] = (0,) * len(_CACHES)
    iterations: float = 0
    written: float = 0
    registers: float = 0


def nest_features(
    nests: Iterable[LoopNest], *, vector_bytes: int, workers: int
) -> tuple[float, ...]:
    """Return the features of nests that run one after the other, most of them logarithms.

    Parameters
    ----------
    vector_bytes
        Width of a vector register.
    workers
        Threads, or units of a GPU, that share the outer loops.
    """
    lanes = vector_bytes // _LANE_BYTES
    bodies = [nest.body for nest in nests]
    known = {id(body): _walk(body, lanes) for body in {id(one): one for one in bodies}.values()}
    works = [(known[id(body)], _shares(body)) for body in bodies]
    reads = sum(sum(work.accesses.values()) for work, _ in works)
    sums = (
        sum(work.instructions for work, _ in works),
        sum(work.instructions * _imbalance(shares, workers) for work, shares in works),
        reads,
        *(sum(work.traffic[level] for work, _ in works) for level in range(len(_CACHES))),
        sum(work.iterations for work, _ in works),
        max((work.written for work, _ in works), default=0),
        max((work.registers for work, _ in works), default=0),
        sum(prod(shares) for _, shares in works),
        max(map(_threads, bodies), default=1),
        len(works),
    )
    return tuple(log2(1 + value) for value in sums)


def _imbalance(shares: tuple[int, ...], workers: int) -> float:
    """Return how much longer than the average the busiest worker takes, for outer loops so long."""
    total = prod(shares)
    return -(-total // workers) * workers / total


def _shares(body: Statement) -> tuple[int, ...]:
    """Return the extents of the outermost loops that are shared out."""
    match body:
        case For(kind=kind, extent=extent) if kind is LoopKind.PARALLEL or kind.is_block:
            return (extent, *_shares(body.body))
        case Allocate() | If():
            return _shares(body.body)
        case _:
            return ()


def _threads(statement: Statement) -> int:
    """Return the most threads of a block."""
    match statement:
        case For():
            own = statement.extent if statement.kind.is_thread else 1
            return own * _threads(statement.body)
        case If() | Allocate():
            return _threads(statement.body)
        case Seq():
            return max(map(_threads, statement.statements))
        case Store() | IntrinsicCall():
            return 1
        case _:
            assert_never(statement)


def _walk(statement: Statement, lanes: int) -> _Work:
    match statement:
        case For():
            return _repeated(statement, _walk(statement.body, lanes), lanes)
        case If():
            return _walk(statement.body, lanes)
        case Allocate():
            return _with_registers(_walk(statement.body, lanes), statement.tensor, lanes)
        case Seq():
            return _joined([_walk(part, lanes) for part in statement.statements])
        case Store():
            return _stored(statement)
        case IntrinsicCall():
            return _walk(_in_lanes(expand(statement)), lanes)
        case _:
            assert_never(statement)


def _in_lanes(statement: Statement) -> Statement:
    """Return the loops of an intrinsic, all of which one instruction carries out."""
    match statement:
        case For():
            return For(
                var=statement.var,
                extent=statement.extent,
                kind=LoopKind.VECTORIZE,
                body=_in_lanes(statement.body),
            )
        case If():
            return _in_lanes(statement.body)
        case Seq():
            return Seq(statements=tuple(map(_in_lanes, statement.statements)))
        case Allocate() | Store() | IntrinsicCall():
            return statement
        case _:
            assert_never(statement)


def _stored(statement: Store) -> _Work:
    accesses: dict[_Access, float] = {}
    places = [(load.tensor, load.indices) for load in loads(statement.value)]
    for tensor, indices in (*places, (statement.tensor, statement.indices)):
        if tensor.scope == _MEMORY:
            accesses[_access(tensor, indices)] = 1
    instructions = sum(
        not isinstance(node, Load) and node.dtype is not ScalarType.INDEX and bool(_operands(node))
        for node in nodes(statement.value)
    )
    touched = float(sum(access.touched({}) for access in accesses))
    return _Work(
        instructions=instructions,
        accesses=accesses,
        ranging={},
        traffic=(touched,) * len(_CACHES),
        written=instructions,
    )


def _operands(node: Expr) -> frozenset[str] | tuple[Load, ...]:
    return variables(node) or loads(node)


def _access(tensor: Tensor, indices: tuple[Expr, ...]) -> _Access:
    pairs = zip(tensor.shape, indices, strict=True)
    return _Access(
        tensor=tensor.name,
        item_bytes=int(tensor.dtype.numpy.itemsize),
        axes=tuple((extent, variables(index)) for extent, index in pairs),
    )


def _repeated(loop: For, body: _Work, lanes: int) -> _Work:
    name, extent = loop.var.name, loop.extent
    times = -(-extent // lanes) if loop.kind is LoopKind.VECTORIZE else extent
    written_out = loop.kind in (LoopKind.VECTORIZE, LoopKind.UNROLL)
    ranging = {**body.ranging, name: extent}
    touched = _touched(body.accesses, ranging)
    return _Work(
        instructions=body.instructions * times,
        # What no written-out loop changes stays in a register.
        accesses={
            access: count if written_out and name not in access.names else count * times
            for access, count in body.accesses.items()
        },
        ranging=ranging,
        traffic=tuple(
            touched if touched <= size else extent * traffic
            for size, traffic in zip(_CACHES, body.traffic, strict=True)
        ),
        iterations=body.iterations * times + (0 if written_out else times),
        written=body.written * times if written_out else body.written,
        registers=body.registers,
    )


def _touched(accesses: Mapping[_Access, float], ranging: Mapping[str, int]) -> float:
    most: dict[str, int] = {}
    for access in accesses:
        most[access.tensor] = max(most.get(access.tensor, 0), access.touched(ranging))
    return float(sum(most.values()))


def _joined(parts: list[_Work]) -> _Work:
    accesses: dict[_Access, float] = {}
    ranging: dict[str, int] = {}
    for part in parts:
        ranging |= part.ranging
        for access, count in part.accesses.items():
            accesses[access] = accesses.get(access, 0) + count
    return _Work(
        instructions=sum(part.instructions for part in parts),
        accesses=accesses,
        ranging=ranging,
        traffic=tuple(map(sum, zip(*(part.traffic for part in parts), strict=True))),
        iterations=sum(part.iterations for part in parts),
        written=max((part.written for part in parts), default=0),
        registers=max((part.registers for part in parts), default=0),
    )


def _with_registers(body: _Work, tensor: Tensor, lanes: int) -> _Work:
    if tensor.scope == _MEMORY:
        return body
    *outer, last = tensor.shape or (1,)
    return _Work(
        instructions=body.instructions,
        accesses=body.accesses,
        ranging=body.ranging,
        traffic=body.traffic,
        iterations=body.iterations,
        written=body.written,
        registers=body.registers + prod(outer) * -(-last // lanes),
    )
