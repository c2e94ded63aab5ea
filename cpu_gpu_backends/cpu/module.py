"""A program as one module: kernels, the function that runs them in order, threads."""

from dataclasses import dataclass

from llvmlite import ir

from tilewright.compiler.tensor.printing import format_nest
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
from tilewright.cpu_gpu_backends.cpu.memory_plan import BufferPlan
from tilewright.cpu_gpu_backends.cpu.program import CpuProgram, Home, Kernel, View
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
    """The function that computes a thread's share of a kernel."""

    function: ir.Function
    extent: int


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
        most = max((len(kernel.views) for kernel in self._program.kernels), default=1)
        operands = builder.alloca(ir.ArrayType(POINTER, most))
        operands.type = POINTER
        for position, kernel in enumerate(self._program.kernels):
            before = self._clock(builder)
            self._call(builder, run, operands, kernel)
            self._note_cycles(builder, position, before)
        count = builder.load(failures, typ=INDEX)
        failed = builder.icmp_signed("!=", count, index(0))
        fault, well = ir.Constant(_STATUS, STATUS_FAULT), ir.Constant(_STATUS, 0)
        builder.ret(builder.select(failed, fault, well))
        return self._module

    def _clock(self, builder: ir.IRBuilder) -> ir.Value | None:
        """Read the processor's counter, if cycles are counted."""
        if not self._options.profile:
            return None
        name = "llvm.readcyclecounter"
        return builder.call(declare_intrinsic(self._module, name, INDEX, ()), ())

    def _note_cycles(self, builder: ir.IRBuilder, position: int, before: ir.Value | None) -> None:
        if before is None:
            return
        cycles = self._module.globals.get(self._names.cycles)
        if cycles is None:
            kind = ir.ArrayType(INDEX, len(self._program.kernels))
            cycles = ir.GlobalVariable(self._module, kind, self._names.cycles)
            cycles.initializer = ir.Constant(kind, None)
            cycles.type = POINTER
        after = self._clock(builder)
        place = builder.gep(cycles, [index(0), index(position)], source_etype=cycles.value_type)
        builder.store(builder.sub(after, before), place)

    def _call(
        self, builder: ir.IRBuilder, run: ir.Function, operands: ir.Value, kernel: Kernel
    ) -> None:
        share = self._share(kernel)
        for position, view in enumerate(kernel.views):
            place = builder.gep(operands, [index(position)], source_etype=POINTER)
            builder.store(self._address(builder, run, view), place)
        if share.extent > 1:
            builder.call(self._dispatch, (share.function, operands))
        else:
            builder.call(share.function, (operands, index(0), index(1)))

    def _address(self, builder: ir.IRBuilder, run: ir.Function, view: View) -> ir.Value:
        program, name = self._program, view.buffer
        buffer = program.buffers[name]
        offset = view.offset * int(buffer.dtype.numpy.itemsize)
        inputs, outputs, workspace = run.args
        match buffer.home:
            case Home.INPUT:
                base = self._given(builder, inputs, program.inputs.index(name))
            case Home.OUTPUT:
                base = self._given(builder, outputs, program.outputs.index(name))
            case Home.WORKSPACE:
                base, offset = workspace, offset + self._plan.offsets[name]
            case Home.CONSTANT:
                base = builder.load(self._constants, typ=POINTER)
                offset += self._plan.offsets[name]
        return builder.gep(base, [index(offset)], source_etype=BYTE)

    @staticmethod
    def _given(builder: ir.IRBuilder, pointers: ir.Value, position: int) -> ir.Value:
        place = builder.gep(pointers, [index(position)], source_etype=POINTER)
        return builder.load(place, typ=POINTER)

    def _share(self, kernel: Kernel) -> _Share:
        strides = tuple(view.strides for view in kernel.views)
        key = (_signature(kernel), strides)
        if key not in self._shares:
            number = len(self._shares)
            name = f"kernel{number}.{kernel.name}"
            function = emit_kernel(self._module, name, kernel.nest, strides, self._options)
            extent = parallel_extent(kernel.nest)
            self._shares[key] = _Share(
                function=self._share_function(f"share{number}", function, extent), extent=extent
            )
        return self._shares[key]

    def _share_function(self, name: str, kernel: ir.Function, extent: int) -> ir.Function:
        function = ir.Function(self._module, _SHARE, name=name)
        function.linkage = "internal"
        operands, thread, threads = function.args
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        pointers = [
            self._given(builder, operands, position) for position in range(len(kernel.args) - 2)
        ]

        def border(of: ir.Value) -> ir.Value:
            return builder.udiv(builder.mul(of, index(extent)), threads)

        builder.call(kernel, (*pointers, border(thread), border(builder.add(thread, index(1)))))
        builder.ret_void()
        return function


def _signature(kernel: Kernel) -> str:
    """Return the text of a nest with its tensors numbered: equal texts, equal code."""
    text = format_nest(kernel.nest)
    names = [tensor.name for tensor in (*kernel.nest.inputs, *kernel.nest.outputs)]
    for number, name in sorted(enumerate(names), key=lambda pair: -len(pair[1])):
        text = text.replace(name, f"\x00{number}\x00")
    return text
