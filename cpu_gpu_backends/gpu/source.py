"""Kernels as source text: one generator for both dialects."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Binary, Expr, Load, Tensor
from tilewright.compiler.tensor.intervals import Interval
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.traversal import variables
from tilewright.cpu_gpu_backends.gpu.dialects import Dialect
from tilewright.cpu_gpu_backends.gpu.emission import emit_intrinsic, fragment_registers
from tilewright.cpu_gpu_backends.gpu.expressions import ExpressionWriter
from tilewright.cpu_gpu_backends.gpu.helpers import HelperUse
from tilewright.cpu_gpu_backends.gpu.kernels import (
    BLOCK_AXES,
    THREAD_AXES,
    Arrive,
    Assign,
    Barrier,
    Declare,
    Fetch,
    Guard,
    Kernel,
    KernelStatement,
    Loop,
    Memory,
    Repetition,
    Sequence,
    Together,
    guards_of,
    leaves,
    operands,
    walk,
)
from tilewright.cpu_gpu_backends.gpu.vectors import VectorAccess, VectorPlan, plan_vector

_INDENT = "    "
#: Words that no tensor or variable may be called: those of C, and what the text itself declares.
_RESERVED = frozenset(
    "auto bool break case char const continue default do double else enum extern float for goto "
    "if half inline int long register restrict return short signed sizeof static struct switch "
    "typedef uchar uint ulong union unsigned ushort void volatile while kernel global local "
    "private constant asm class new delete this template namespace operator lane packed min max "
    "exp log pow sqrt abs floor erf tanh rint fma select all any dot cross length step sign mix "
    "clamp".split()
)


def kernel_source(kernels: tuple[Kernel, ...], dialect: Dialect) -> str:
    """Return the source text of `kernels`, with everything that they need."""
    helpers: dict[HelperUse, None] = {}
    texts = []
    for kernel in kernels:
        writer = _KernelWriter.of(kernel, dialect, helpers)
        texts.append("\n".join(writer.lines()))
    definitions = [use.text(dialect) for use in helpers]
    return "\n".join([dialect.prelude, *definitions, "", *texts, ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class _KernelWriter:
    kernel: Kernel
    dialect: Dialect
    writer: ExpressionWriter
    #: What is in front of what a pointer to a tensor points to.
    spaces: dict[Tensor, str]
    #: Whether copies to shared memory may arrive later.
    fetches: bool = False

    @classmethod
    def of(
        cls, kernel: Kernel, dialect: Dialect, helpers: dict[HelperUse, None]
    ) -> "_KernelWriter":
        names = _Names()
        tensors: dict[Tensor, str] = {}
        spaces: dict[Tensor, str] = {}
        for parameter in kernel.parameters:
            tensors[parameter.tensor] = names.take(parameter.tensor.name)
            spaces[parameter.tensor] = dialect.global_pointer
        for tensor in kernel.shared:
            tensors[tensor] = names.take(tensor.name)
            spaces[tensor] = dialect.shared_pointer
        variables = {axis.value: names.take(axis.value) for axis in (*BLOCK_AXES, *THREAD_AXES)}
        for statement in walk(kernel.body):
            match statement:
                case Declare():
                    tensors[statement.tensor] = names.take(statement.tensor.name)
                    spaces[statement.tensor] = ""
                case Loop() if statement.var.name not in variables:
                    variables[statement.var.name] = names.take(statement.var.name)
        writer = ExpressionWriter(
            dialect=dialect, tensors=tensors, variables=variables, helpers=helpers
        )
        return cls(kernel=kernel, dialect=dialect, writer=writer, spaces=spaces)

    def lines(self) -> Iterator[str]:
        head = self.dialect.kernel.format(bounds=self._bounds())
        yield f"{head} {self.kernel.name}({self._parameters()})"
        yield "{"
        for tensor in self.kernel.shared:
            size = prod(tensor.shape)
            name = f"{self.dialect.types[tensor.dtype]} {self.writer.tensors[tensor]}[{size}]"
            yield f"{_INDENT}{self.dialect.shared} TW_ALIGNED {name};"
        used = _used_variables(self.kernel.body)
        ranges: dict[str, Interval] = {}
        axes, extents = (*BLOCK_AXES, *THREAD_AXES), (*self.kernel.grid, *self.kernel.block)
        for axis, extent in zip(axes, extents, strict=True):
            ranges[axis.value] = Interval(0, extent - 1)
            if axis.value in used:
                name = self.writer.variables[axis.value]
                yield f"{_INDENT}const int {name} = {self.dialect.axes[axis]};"
        yield from self._statement(self.kernel.body, ranges, _INDENT)
        yield "}"

    def _private(self) -> frozenset[Tensor]:
        declared = (part for part in walk(self.kernel.body) if isinstance(part, Declare))
        return frozenset(declaration.tensor for declaration in declared)

    def _bounds(self) -> str:
        return self.dialect.launch_bounds.format(
            threads=self.kernel.threads,
            x=self.kernel.block[0],
            y=self.kernel.block[1],
            z=self.kernel.block[2],
        )

    def _parameters(self) -> str:
        texts = []
        for parameter in self.kernel.parameters:
            element = self.dialect.types[parameter.tensor.dtype]
            constant = "" if parameter.written else "const "
            pointer = self.dialect.pointer.format(f"{constant}{element}")
            texts.append(f"{pointer}{self.writer.tensors[parameter.tensor]}")
        return ", ".join(texts)

    def _statement(  # noqa: C901
        self, statement: KernelStatement, ranges: dict[str, Interval], indent: str
    ) -> Iterator[str]:
        match statement:
            case Loop():
                yield from self._loop(statement, ranges, indent)
            case Guard():
                yield f"{indent}if ({self.writer.write(statement.condition, ranges)}) {{"
                yield from self._statement(statement.body, ranges, indent + _INDENT)
                yield f"{indent}}}"
            case Assign():
                yield f"{indent}{self._assignment(statement, ranges)}"
            case Declare():
                yield f"{indent}{{"
                yield f"{indent}{_INDENT}{self._declaration(statement)}"
                yield from self._statement(statement.body, ranges, indent + _INDENT)
                yield f"{indent}}}"
            case Sequence():
                for part in statement.statements:
                    yield from self._statement(part, ranges, indent)
            case Barrier():
                yield f"{indent}{self.dialect.barrier}"
            case Fetch():
                yield from replace(self, fetches=True)._statement(statement.body, ranges, indent)
                yield f"{indent}TW_FETCHED"
            case Arrive():
                yield f"{indent}TW_ARRIVE"
            case Together():
                for line in emit_intrinsic(statement.call, self.writer, self.spaces, ranges):
                    yield f"{indent}{line}"
            case _:
                assert_never(statement)

    def _declaration(self, statement: Declare) -> str:
        tensor = statement.tensor
        size = prod(tensor.shape)
        if statement.memory is Memory.FRAGMENT:
            size = fragment_registers(tensor)
        start = " = {}" if statement.memory is Memory.FRAGMENT else ""
        return f"{self.dialect.types[tensor.dtype]} {self.writer.tensors[tensor]}[{size}]{start};"

    def _loop(self, loop: Loop, ranges: dict[str, Interval], indent: str) -> Iterator[str]:
        inside = {**ranges, loop.var.name: Interval(0, loop.extent - 1)}
        if loop.repetition is Repetition.VECTOR:
            plan = plan_vector(loop, inside, self._private())
            if plan is not None and self.fetches and plan.is_copy:
                yield from self._fetch(plan, inside, indent)
                return
            if plan is not None:
                yield from self._vector(plan, inside, indent)
                return
        if loop.repetition is not Repetition.SERIAL:
            yield f"{indent}#pragma unroll"
        elif any(_is_unrolled(part) for part in walk(loop.body)):
            # What is written out within is meant to fit the registers once.
            yield f"{indent}#pragma unroll 1"
        yield f"{indent}{self._head(loop)} {{"
        yield from self._statement(loop.body, inside, indent + _INDENT)
        yield f"{indent}}}"

    def _head(self, loop: Loop) -> str:
        name = self.writer.variables[loop.var.name]
        return f"for (int {name} = 0; {name} < {loop.extent}; ++{name})"

    def _vector(self, plan: VectorPlan, ranges: dict[str, Interval], indent: str) -> Iterator[str]:
        if plan.condition is not None:
            yield f"{indent}if ({self.writer.write(plan.condition, ranges)})"
        yield f"{indent}{{"
        inner = indent + _INDENT
        name = self.writer.variables[plan.loop.var.name]
        at_start = {**ranges, plan.loop.var.name: Interval(0, 0)}
        for number, access in enumerate(plan.loads):
            union = f"lanes{number}"
            yield f"{inner}{self._union(access, union)}"
            move = f"{union}.packed = {self._packed(access, at_start, constant=True)};"
            guards = " && ".join(self.writer.write(guard, at_start) for guard in access.guards)
            yield f"{inner}if ({guards}) {move}" if guards else f"{inner}{move}"
            self.writer.lanes[access.load] = f"{union}.lane[{name}]"
        if plan.store is not None:
            yield f"{inner}{self._union(plan.store, 'result')}"
        yield f"{inner}#pragma unroll"
        yield f"{inner}{self._head(plan.loop)}"
        value = self.writer.write(plan.assign.value, ranges)
        if plan.store is None:
            place = self.writer.element(plan.assign.tensor, plan.assign.indices, ranges)
            yield f"{inner}{_INDENT}{place} = {value};"
        else:
            yield f"{inner}{_INDENT}result.lane[{name}] = {value};"
            yield f"{inner}{self._packed(plan.store, at_start, constant=False)} = result.packed;"
        self.writer.lanes.clear()
        yield f"{indent}}}"

    def _fetch(self, plan: VectorPlan, ranges: dict[str, Interval], indent: str) -> Iterator[str]:
        """Copy neighbouring elements, or zeros where a guard does not hold, without waiting."""
        assert plan.store is not None, "a copy has a target"
        (source,) = plan.loads
        at_start = {**ranges, plan.loop.var.name: Interval(0, 0)}
        guards = " && ".join(self.writer.write(guard, at_start) for guard in source.guards)
        target, origin = (
            f"&{self.writer.tensors[one.load.tensor]}[{self.writer.write(one.start, at_start)}]"
            for one in (plan.store, source)
        )
        condition = "" if plan.condition is None else self.writer.write(plan.condition, ranges)
        head = f"if ({condition}) " if condition else ""
        packed = self.dialect.packed[source.size_bytes]
        yield f"{indent}{head}TW_FETCH({packed}, {target}, {origin}, {guards or '1'});"

    def _union(self, access: VectorAccess, name: str) -> str:
        element = self.dialect.types[access.load.tensor.dtype]
        packed = self.dialect.packed[access.size_bytes]
        return f"union {{ {packed} packed; {element} lane[{access.lanes}]; }} {name};"

    def _packed(
        self, access: VectorAccess, at_start: dict[str, Interval], *, constant: bool
    ) -> str:
        packed, tensor = self.dialect.packed[access.size_bytes], access.load.tensor
        prefix = f"{self.spaces[tensor]}{'const ' if constant else ''}"
        place = f"{self.writer.tensors[tensor]}[{self.writer.write(access.start, at_start)}]"
        return f"*({prefix}{packed} *)&{place}"

    def _assignment(self, assign: Assign, ranges: dict[str, Interval]) -> str:
        place = self.writer.element(assign.tensor, assign.indices, ranges)
        terms = _product_added(assign)
        if terms is None:
            return f"{place} = {self.writer.write(assign.value, ranges)};"
        left, right = (self.writer.write(term, ranges) for term in terms)
        suffix = self.dialect.float_suffix if assign.value.dtype is ScalarType.FLOAT32 else ""
        return f"{place} = fma{suffix}({left}, {right}, {place});"


def _is_unrolled(statement: KernelStatement) -> bool:
    return isinstance(statement, Loop) and statement.repetition is Repetition.UNROLLED


def _product_added(assign: Assign) -> tuple[Expr, Expr] | None:
    """Return the factors where a floating-point product is added to what is there already."""
    match assign.value:
        case Binary(Operator.ADD, Load(tensor, indices), Binary(Operator.MULTIPLY, left, right)):
            same = tensor is assign.tensor and indices == assign.indices
            if same and assign.value.dtype in (ScalarType.FLOAT32, ScalarType.FLOAT64):
                return left, right
    return None


def _used_variables(body: KernelStatement) -> frozenset[str]:
    exprs = [expr for leaf in leaves(body) for expr in operands(leaf)]
    exprs += guards_of(body)
    return frozenset().union(*(variables(expr) for expr in exprs))


class _Names:
    """Names that C allows, each given out once."""

    def __init__(self) -> None:
        self._taken = set(_RESERVED)

    def take(self, wanted: str) -> str:
        """Return a free name like `wanted`."""
        stem = re.sub(r"\W", "_", wanted)
        stem = f"v{stem}" if not stem or not (stem[0].isalpha()) else stem
        name, number = stem, 1
        while name in self._taken or name.startswith(("tw_", "TW_", "lanes", "result")):
            name, number = f"v_{stem}_{number}", number + 1
        self._taken.add(name)
        return name
