"""A program as one module: kernels, the function that runs them in order, threads."""

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir
from typing_extensions import assert_never

from tilewright.compiler.tensor.printing import format_nest
from tilewright.cpu_gpu_backends.codegen.clock import COUNTER
from tilewright.cpu_gpu_backends.codegen.failures import failure_counter
from tilewright.cpu_gpu_backends.codegen.kernels import (
    KernelOptions,
    emit_kernel,
    parallel_extent,
)
from tilewright.cpu_gpu_backends.codegen.types import (
    BYTE,
    INDEX,
    POINTER,
    declare_intrinsic,
    index,
)
from tilewright.cpu_gpu_backends.cpu.memory_plan import ALIGNMENT_BYTES, BufferPlan
from tilewright.cpu_gpu_backends.cpu.program import Call, Chain, CpuProgram, Home, Kernel, View
from tilewright.cpu_gpu_backends.cpu.spin_pool import DISPATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a module's functions and variables."""

    prefix: str = "tilewright"

    @property
    def run(self) -> str:
        """``int run(const void **inputs, void **outputs, void *workspace)``: 0 or a fault."""
        return f"{self.prefix}_run"

    @property
    def prepare(self) -> str:
        """``void prepare(void *workspace)``: fills what stays there, before the first run."""
        return f"{self.prefix}_prepare"

    @property
    def constants(self) -> str:
        """The variable with the address of the constants, `BufferPlan.constant_bytes` long."""
        return f"{self.prefix}_constants"

    @property
    def constant_data(self) -> str:
        """The constants themselves, in another object file."""
        return f"{self.prefix}_constant_data"

    @property
    def cycles(self) -> str:
        """Cycles that each kernel has taken in the last run, if they are counted."""
        return f"{self.prefix}_cycles"


#: What running a program returns if bounds are checked and an access was out of bounds.
STATUS_FAULT = 1

_STATUS = ir.IntType(32)
_SHARE = ir.FunctionType(ir.VoidType(), (POINTER, INDEX, INDEX))


def program_module(
    program: CpuProgram,
    plan: BufferPlan,
    options: KernelOptions,
    names: Names,
    *,
    constant_data: bool = False,
) -> str:
    """Return the module of a program in LLVM's assembly, without the pool of threads.

    Parameters
    ----------
    constant_data
        Whether another object file holds the constants; otherwise their address is to be set.
    """
    return str(_ModuleEmitter(program, plan, options, names, constant_data).emit())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """The function that computes a thread's share of a kernel, or any part of it by `kernel`."""

    function: ir.Function
    kernel: ir.Function
    extent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bases:
    """The addresses that the caller of a program gives, and that of a thread's scratch memory."""

    inputs: ir.Value
    outputs: ir.Value
    workspace: ir.Value
    scratch: ir.Value | None = None


class _ModuleEmitter:
    def __init__(
        self,
        program: CpuProgram,
        plan: BufferPlan,
        options: KernelOptions,
        names: Names,
        constant_data: bool,
    ) -> None:
        self._names = names
        self._program = program
        self._plan = plan
        self._options = options
        self._module = ir.Module(name=program.name)
        self._module.triple = options.target.triple
        #: Kernels that are the same but for where their tensors lie share their code.
        self._shares: dict[tuple[object, ...], _Share] = {}
        #: Of nests, by identity: the program keeps them alive.
        self._signatures: dict[int, str] = {}
        self._dispatch = ir.Function(
            self._module, ir.FunctionType(ir.VoidType(), (POINTER, POINTER)), name=DISPATCH
        )
        self._constants = ir.GlobalVariable(self._module, POINTER, names.constants)
        self._constants.initializer = ir.Constant(POINTER, None)
        if constant_data:
            data = ir.GlobalVariable(self._module, BYTE, names.constant_data)
            data.type = POINTER
            self._constants.initializer = data

    def emit(self) -> ir.Module:
        failures = failure_counter(self._module)
        kind = ir.FunctionType(_STATUS, (POINTER, POINTER, POINTER))
        run = ir.Function(self._module, kind, name=self._names.run)
        builder = ir.IRBuilder(run.append_basic_block("entry"))
        bases = _Bases(inputs=run.args[0], outputs=run.args[1], workspace=run.args[2])
        most = max((len(s.views) for s in self._program.steps if isinstance(s, Kernel)), default=0)
        operands = builder.alloca(ir.ArrayType(POINTER, max(most, len(run.args))))
        operands.type = POINTER
        kept = set(map(id, self._plan.borders))
        for position, step in enumerate(self._program.steps):
            if id(step) in kept:
                continue
            before = self._clock(builder)
            match step:
                case Kernel():
                    self._run_kernel(builder, bases, operands, step)
                case Chain():
                    self._run_chain(builder, bases, operands, step)
                case _:
                    assert_never(step)
            self._note_cycles(builder, position, before)
        count = builder.load(failures, typ=INDEX)
        failed = builder.icmp_signed("!=", count, index(0))
        fault, well = ir.Constant(_STATUS, STATUS_FAULT), ir.Constant(_STATUS, 0)
        builder.ret(builder.select(failed, fault, well))
        if kept:
            self._emit_preparation()
        return self._module

    def _emit_preparation(self) -> None:
        kind = ir.FunctionType(ir.VoidType(), (POINTER,))
        prepare = ir.Function(self._module, kind, name=self._names.prepare)
        builder = ir.IRBuilder(prepare.append_basic_block("entry"))
        (workspace,) = prepare.args
        nobody = ir.Constant(POINTER, None)
        bases = _Bases(inputs=nobody, outputs=nobody, workspace=workspace)
        for border in self._plan.borders:
            addresses = [self._address(builder, bases, view) for view in border.views]
            share = self._share(border)
            builder.call(share.kernel, (*addresses, index(0), index(share.extent)))
        builder.ret_void()

    def _clock(self, builder: ir.IRBuilder) -> ir.Value | None:
        """Read the processor's counter, if cycles are counted."""
        if not self._options.profile:
            return None
        return builder.call(declare_intrinsic(self._module, COUNTER, INDEX, ()), ())

    def _note_cycles(self, builder: ir.IRBuilder, position: int, before: ir.Value | None) -> None:
        if before is None:
            return
        cycles = self._module.globals.get(self._names.cycles)
        if cycles is None:
            kind = ir.ArrayType(INDEX, len(self._program.steps))
            cycles = ir.GlobalVariable(self._module, kind, self._names.cycles)
            cycles.initializer = ir.Constant(kind, None)
            cycles.type = POINTER
        after = self._clock(builder)
        place = builder.gep(cycles, [index(0), index(position)], source_etype=cycles.value_type)
        builder.store(builder.sub(after, before), place)

    def _run_kernel(
        self, builder: ir.IRBuilder, bases: _Bases, operands: ir.Value, kernel: Kernel
    ) -> None:
        share = self._share(kernel)
        addresses = [self._address(builder, bases, view) for view in kernel.views]
        self._set_operands(builder, operands, addresses)
        self._hand_out(builder, share.function, operands, share.extent)

    def _run_chain(
        self, builder: ir.IRBuilder, bases: _Bases, operands: ir.Value, chain: Chain
    ) -> None:
        function = self._chain_function(chain)
        self._set_operands(builder, operands, [bases.inputs, bases.outputs, bases.workspace])
        self._hand_out(builder, function, operands, len(chain.bands))

    @staticmethod
    def _set_operands(
        builder: ir.IRBuilder, operands: ir.Value, addresses: Sequence[ir.Value]
    ) -> None:
        for position, address in enumerate(addresses):
            place = builder.gep(operands, [index(position)], source_etype=POINTER)
            builder.store(address, place)

    def _hand_out(
        self, builder: ir.IRBuilder, function: ir.Function, operands: ir.Value, extent: int
    ) -> None:
        if extent > 1:
            builder.call(self._dispatch, (function, operands))
        else:
            builder.call(function, (operands, index(0), index(1)))

    def _address(self, builder: ir.IRBuilder, bases: _Bases, view: View) -> ir.Value:
        program, name = self._program, view.buffer
        buffer = program.buffers[name]
        offset = view.offset * int(buffer.dtype.numpy.itemsize)
        match buffer.home:
            case Home.INPUT:
                base = self._given(builder, bases.inputs, program.inputs.index(name))
            case Home.OUTPUT:
                base = self._given(builder, bases.outputs, program.outputs.index(name))
            case Home.WORKSPACE:
                base, offset = bases.workspace, offset + self._plan.offsets[name]
            case Home.SCRATCH:
                assert bases.scratch is not None, f"{name!r} is used within a chain"
                base, offset = bases.scratch, offset + self._plan.offsets[name]
            case Home.CONSTANT:
                base = builder.load(self._constants, typ=POINTER)
                offset += self._plan.offsets[name]
            case _:
                assert_never(buffer.home)
        return builder.gep(base, [index(offset)], source_etype=BYTE)

    @staticmethod
    def _given(builder: ir.IRBuilder, pointers: ir.Value, position: int) -> ir.Value:
        place = builder.gep(pointers, [index(position)], source_etype=POINTER)
        return builder.load(place, typ=POINTER)

    def _share(self, kernel: Kernel) -> _Share:
        strides = tuple(view.strides for view in kernel.views)
        key = (self._signature(kernel), strides)
        if key not in self._shares:
            number = len(self._shares)
            name = f"kernel{number}.{kernel.name}"
            function = emit_kernel(self._module, name, kernel.nest, strides, self._options)
            extent = parallel_extent(kernel.nest)
            share = self._share_function(f"share{number}", function, extent)
            self._shares[key] = _Share(function=share, kernel=function, extent=extent)
        return self._shares[key]

    def _share_function(self, name: str, kernel: ir.Function, extent: int) -> ir.Function:
        function = ir.Function(self._module, _SHARE, name=name)
        function.linkage = "internal"
        operands, thread, threads = function.args
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        pointers = [
            self._given(builder, operands, position) for position in range(len(kernel.args) - 2)
        ]

        builder.call(kernel, (*pointers, *_shared_out(builder, extent, thread, threads)))
        builder.ret_void()
        return function

    def _chain_function(self, chain: Chain) -> ir.Function:
        """Emit the function that computes a thread's share of the bands of a chain."""
        function = ir.Function(self._module, _SHARE, name=f"chain.{chain.name}")
        function.linkage = "internal"
        operands, thread, threads = function.args
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        scratch = builder.alloca(ir.ArrayType(BYTE, self._plan.scratch_bytes))
        scratch.align, scratch.type = ALIGNMENT_BYTES, POINTER
        inputs, outputs, workspace = (
            self._given(builder, operands, position) for position in range(3)
        )
        bases = _Bases(inputs=inputs, outputs=outputs, workspace=workspace, scratch=scratch)
        begin, end = _shared_out(builder, len(chain.bands), thread, threads)
        for number, band in enumerate(chain.bands):
            after = builder.icmp_signed(">=", index(number), begin)
            mine = builder.and_(after, builder.icmp_signed("<", index(number), end))
            with builder.if_then(mine):
                first = builder.icmp_signed("==", index(number), begin)
                with builder.if_else(first) as (alone, following):
                    with alone:
                        self._run_calls(builder, bases, band.alone)
                    with following:
                        self._run_calls(builder, bases, band.following)
        builder.ret_void()
        return function

    def _run_calls(self, builder: ir.IRBuilder, bases: _Bases, calls: Sequence[Call]) -> None:
        for call in calls:
            addresses = [self._address(builder, bases, view) for view in call.kernel.views]
            kernel = self._share(call.kernel).kernel
            builder.call(kernel, (*addresses, index(call.begin), index(call.end)))

    def _signature(self, kernel: Kernel) -> str:
        """Return the text of a nest with its tensors numbered: equal texts, equal code."""
        if (found := self._signatures.get(id(kernel.nest))) is not None:
            return found
        text = format_nest(kernel.nest)
        names = [tensor.name for tensor in (*kernel.nest.inputs, *kernel.nest.outputs)]
        for number, name in sorted(enumerate(names), key=lambda pair: -len(pair[1])):
            text = text.replace(name, f"\x00{number}\x00")
        self._signatures[id(kernel.nest)] = text
        return text


def _shared_out(
    builder: ir.IRBuilder, extent: int, thread: ir.Value, threads: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return where the share of a thread begins and where it ends."""

    def border(of: ir.Value) -> ir.Value:
        return builder.udiv(builder.mul(of, index(extent)), threads)

    return border(thread), border(builder.add(thread, index(1)))
