"""What the emission of one function keeps: its builder, variables, tensors and vector lanes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from llvmlite import ir

from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.intervals import Interval
from tilewright.compiler.tensor.linear import Linear
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.codegen.types import POINTER


@dataclass(frozen=True, slots=True)
class Lanes:
    """The values ``base + start ..`` of a variable, one in each of `count` vector lanes."""

    base: ir.Value | None
    start: int
    count: int


#: A loop variable while code is emitted: known, in a register, or spread over vector lanes.
Binding: TypeAlias = int | ir.Value | Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where a tensor lies: the address of its first element and its strides in elements.

    It may be the function's own, on the stack, or in registers where places are known.
    """

    tensor: Tensor
    pointer: ir.Value
    strides: tuple[int, ...]
    own: bool = False


@dataclass(slots=True, kw_only=True)
class Frame:
    """The state of emission within one function.

    Attributes
    ----------
    lanes
        Lanes of the vector loop that is being emitted, 0 outside of one.
    check_bounds
        Whether every access is checked against its tensor's shape.
    ahead
        Inputs of which what lies so many elements behind each element read is fetched, too.
    values
        Results by what they stand for, valid in the current basic block only.
    positions
        Addresses as linear combinations of variables, by the identity of the indices, which are
        kept beside them so that it stays theirs.
    """

    builder: ir.IRBuilder
    target: CpuTarget
    check_bounds: bool = False
    ahead: Mapping[str, int] = field(default_factory=dict)
    variables: dict[str, Binding] = field(default_factory=dict)
    ranges: dict[str, Interval] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    lanes: int = 0
    values: dict[object, ir.Value] = field(default_factory=dict)
    positions: dict[tuple[int, str], tuple[tuple[Expr, ...], Linear]] = field(default_factory=dict)

    def enter(self, block: ir.Block) -> None:
        """Go on at the end of another basic block."""
        self.builder.position_at_end(block)
        self.values.clear()

    def block(self, name: str) -> ir.Block:
        """Return a new basic block."""
        return self.builder.append_basic_block(name)

    @contextmanager
    def bound(self, name: str, binding: Binding, extent: int) -> Iterator[None]:
        """Let the variable `name`, of 0 to ``extent - 1``, stand for `binding`."""
        before, range_before = self.variables.get(name), self.ranges.get(name)
        self.variables[name], self.ranges[name] = binding, Interval(0, extent - 1)
        if isinstance(binding, int):
            self.ranges[name] = Interval(binding, binding)
        try:
            yield
        finally:
            del self.variables[name], self.ranges[name]
            if before is not None and range_before is not None:
                self.variables[name], self.ranges[name] = before, range_before

    @contextmanager
    def vector(self, lanes: int) -> Iterator[None]:
        """Emit for so many lanes at once."""
        before, self.lanes = self.lanes, lanes
        try:
            yield
        finally:
            self.lanes = before

    def entry_alloca(self, kind: ir.Type, alignment: int) -> ir.Value:
        """Reserve stack memory once per call of the function."""
        entry = self.builder.function.entry_basic_block
        with self.builder.goto_block(entry):
            self.builder.position_at_start(entry)
            memory = self.builder.alloca(kind)
        memory.align, memory.type = alignment, POINTER
        return memory
