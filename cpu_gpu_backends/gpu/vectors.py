"""Loops in vector lanes: which neighbouring elements are loaded and stored together."""

from dataclasses import dataclass

from tilewright.compiler.tensor.build import call, constant, equal
from tilewright.compiler.tensor.expressions import Const, Expr, Load, Select, Tensor
from tilewright.compiler.tensor.intervals import Ranges
from tilewright.compiler.tensor.linear import Linear, from_linear, to_linear
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.simplify import prove
from tilewright.compiler.tensor.traversal import children, variables
from tilewright.cpu_gpu_backends.gpu.expressions import flat_index
from tilewright.cpu_gpu_backends.gpu.kernels import (
    Assign,
    Guard,
    KernelStatement,
    Loop,
)

#: How many bytes can be moved at once, where they are aligned to as many.
VECTOR_BYTES = frozenset({2, 4, 8, 16})

#: The smallest copy that may arrive later (PTX ISA, cp.async).
_SMALLEST_COPY_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorAccess:
    """Neighbouring elements moved at once: from position `start`, where all `guards` hold."""

    load: Load
    start: Expr
    lanes: int
    guards: tuple[Expr, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes that are moved."""
        return self.lanes * self.load.dtype.numpy.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorPlan:
    """One assignment for all lanes of a loop: vector loads, lane by lane, at most one store."""

    loop: Loop
    condition: Expr | None
    assign: Assign
    loads: tuple[VectorAccess, ...]
    store: VectorAccess | None

    @property
    def is_copy(self) -> bool:
        """Whether the loop copies elements as they are, or sets all of them to zero."""
        value: Expr = self.assign.value
        while isinstance(value, Select) and _is_zero(value.otherwise):
            value = value.then
        return (
            self.store is not None
            and [access.load for access in self.loads] == [value]
            and self.store.size_bytes >= _SMALLEST_COPY_BYTES
        )


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and not expr.value


def plan_vector(loop: Loop, ranges: Ranges, private: frozenset[Tensor]) -> VectorPlan | None:
    """Return how the lanes of `loop` are carried out together, None where nothing is gained.

    What lies in `private` memory has no address, its elements are in registers of their own.
    """
    body: KernelStatement = loop.body
    condition: Expr | None = None
    if isinstance(body, Guard) and loop.var.name not in variables(body.condition):
        condition, body = body.condition, body.body
    if not isinstance(body, Assign):
        return None
    sources: dict[Load, tuple[Expr, ...] | None] = {}
    _collect(body.value, (), sources)
    reads_itself = any(load.tensor is body.tensor for load in sources)
    store = None
    if not reads_itself and body.tensor not in private:
        store = _access(Load(body.tensor, body.indices), loop, ranges, ())
    loads = [
        _access(load, loop, ranges, guards)
        for load, guards in sources.items()
        if guards is not None and load.tensor not in private | {body.tensor}
    ]
    found = tuple(access for access in loads if access is not None)
    if store is None and not found:
        return None
    return VectorPlan(loop=loop, condition=condition, assign=body, loads=found, store=store)


def _collect(
    expr: Expr, guards: tuple[Expr, ...], found: dict[Load, tuple[Expr, ...] | None]
) -> None:
    """Add the loads in `expr`, each with the conditions under which it is done.

    None stands for one that is done under different conditions in different places.
    """
    match expr:
        case Load():
            same = found.get(expr, guards) == guards
            found[expr] = guards if same else None
        case Select(condition, then, otherwise):
            _collect(condition, guards, found)
            _collect(then, (*guards, condition), found)
            _collect(otherwise, (*guards, call(Function.NOT, condition)), found)
        case _:
            for operand in children(expr):
                _collect(operand, guards, found)


def _access(
    load: Load, loop: Loop, ranges: Ranges, guards: tuple[Expr, ...]
) -> VectorAccess | None:
    """Return the lanes of `load` as one access if they are neighbours on a boundary."""
    name = loop.var.name
    if loop.extent * load.dtype.numpy.itemsize not in VECTOR_BYTES:
        return None
    if any(name in variables(guard) for guard in guards):
        return None
    flat = to_linear(flat_index(load.tensor, load.indices))
    steps = dict(flat.terms)
    if steps.pop(loop.var, 0) != 1 or any(name in variables(atom) for atom in steps):
        return None
    start = Linear(tuple(steps.items()), flat.constant)
    aligned = all(step % loop.extent == 0 for step in (*steps.values(), start.constant))
    first = from_linear(start)
    extent = constant(loop.extent, ScalarType.INDEX)
    if not aligned and not prove(equal(first % extent, 0), ranges):
        return None
    return VectorAccess(load=load, start=first, lanes=loop.extent, guards=guards)
