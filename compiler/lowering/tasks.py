"""Tasks: instructions without tokens, with the entries and DRAM bytes that they touch."""

from dataclasses import dataclass

from tilewright.compiler.lowering.scratchpads import Span
from tilewright.isa.instructions import Gemm, Load, Store, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class DramRegion:
    """Rows of bytes: `planes` x `rows` x `row_bytes`."""

    address: int
    row_bytes: int
    rows: int = 1
    planes: int = 1
    row_stride: int = 0
    plane_stride: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One instruction and its effects."""

    instruction: Load | Gemm | Vector | Store
    #: Scratchpad entries that are read.
    reads: tuple[Span, ...] = ()
    #: Scratchpad entries that are written.
    writes: tuple[Span, ...] = ()
    #: What a load reads or a store writes.
    dram: DramRegion | None = None
    #: Index of the layer that the task belongs to.
    layer: int
