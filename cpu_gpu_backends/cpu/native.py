"""A program as machine code in this process, run on numpy arrays."""

import ctypes
import mmap
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from tilewright.cpu_gpu_backends.codegen.engine import LoadedModule, load_module
from tilewright.cpu_gpu_backends.codegen.failures import FAILURES
from tilewright.cpu_gpu_backends.codegen.kernels import KernelOptions
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.memory_plan import ALIGNMENT_BYTES, BufferPlan, plan_buffers
from tilewright.cpu_gpu_backends.cpu.module import Names, program_module
from tilewright.cpu_gpu_backends.cpu.program import Array, CpuProgram
from tilewright.cpu_gpu_backends.cpu.spin_pool import MAX_THREADS, spin_pool, start_name, stop_name
from tilewright.isa.errors import CompileError, InputError

_NAMES = Names()
#: Of x86-64 and of ARM with pages of 4 KiB. Weights are read once per run, faster in such pages.
_HUGE_PAGE_BYTES = 2 << 20


@dataclass(kw_only=True, eq=False)
class NativeProgram:
    """Machine code with its constants and its workspace; one run at a time, others wait."""

    program: CpuProgram
    plan: BufferPlan
    _module: LoadedModule
    _constants: Array
    _workspace: Array
    _run: Callable[..., int]
    _start: Callable[[int], int]
    _threads: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, inputs: Sequence[Array], threads: int = 1) -> list[Array]:
        """Return the outputs for inputs in the program's order, shapes and element types.

        Raises
        ------
        InputError
            If an input has another size or element type, or there cannot be so many threads.
        CompileError
            If bounds are checked and an access was out of bounds.
        """
        arrays = [
            self._checked(name, array)
            for name, array in zip(self.program.inputs, inputs, strict=True)
        ]
        buffers = [self.program.buffers[name] for name in self.program.outputs]
        results = [np.empty(buffer.elements, buffer.dtype.numpy) for buffer in buffers]
        with self._lock:
            self._use_threads(threads)
            status = self._run(_addresses(arrays), _addresses(results), self._workspace.ctypes.data)
        if status:
            ctypes.c_int64.from_address(self._module.address(FAILURES)).value = 0
            raise CompileError(
                f"the code of {self.program.name!r} reads or writes outside of a tensor"
            )
        return results

    def bound_call(self, inputs: Sequence[Array], threads: int = 1) -> Callable[[], int]:
        """Return a call of the machine code alone, for measurements; results are dropped."""
        arrays = [np.ascontiguousarray(array) for array in inputs]
        buffers = [self.program.buffers[name] for name in self.program.outputs]
        results = [np.empty(buffer.elements, buffer.dtype.numpy) for buffer in buffers]
        given, taken = _addresses(arrays), _addresses(results)
        workspace, kept = self._workspace.ctypes.data, (arrays, results)

        def call() -> int:
            assert kept, "the arrays live as long as the call"
            self._use_threads(threads)
            return self._run(given, taken, workspace)

        return call

    def cycles(self) -> tuple[tuple[str, int], ...]:
        """Return layer and cycles of each kernel in the last run of a program that counts them."""
        layers = self.program.layers
        counted = (ctypes.c_int64 * len(layers)).from_address(self._module.address(_NAMES.cycles))
        return tuple(zip(layers, counted, strict=True))

    def _use_threads(self, threads: int) -> None:
        if threads == self._threads:
            return
        if not 1 <= threads <= MAX_THREADS:
            raise InputError(f"threads must be between 1 and {MAX_THREADS}, not {threads}")
        if self._start(threads):
            self._threads = 1
            raise InputError(f"the system does not start {threads} threads")
        self._threads = threads

    def _checked(self, name: str, array: Array) -> Array:
        buffer = self.program.buffers[name]
        if array.size != buffer.elements or array.dtype != buffer.dtype.numpy:
            raise InputError(
                f"input {name!r} must be {buffer.elements} values of type {buffer.dtype},"
                f" not {array.size} of {array.dtype}"
            )
        return np.ascontiguousarray(array)


def load_program(
    program: CpuProgram,
    target: CpuTarget,
    *,
    check_bounds: bool = False,
    profile: bool = False,
) -> NativeProgram:
    """Compile a program into this process.

    Parameters
    ----------
    check_bounds
        Check each access, and raise at the first one out of bounds: slow, for finding faults.
    profile
        Count the cycles of each kernel.
    """
    plan = plan_buffers(program, keeps_borders=True)
    options = KernelOptions(target=target, check_bounds=check_bounds, profile=profile)
    constants = pack_constants(program.constants, plan)
    workspace = _aligned(plan.workspace_bytes)
    module = load_module(
        program_module(program, plan, options, _NAMES),
        target,
        libraries=(spin_pool(target, _NAMES.prefix),),
    )
    place = ctypes.c_void_p.from_address(module.address(_NAMES.constants))
    place.value = constants.ctypes.data
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    if plan.borders:
        prepare = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address(_NAMES.prepare))
        prepare(workspace.ctypes.data)
    start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(module.address(start_name(_NAMES.prefix)))
    native = NativeProgram(
        program=program,
        plan=plan,
        _module=module,
        _constants=constants,
        _workspace=workspace,
        _run=run(module.address(_NAMES.run)),
        _start=start,
    )
    weakref.finalize(native, _stop, module)
    return native


def pack_constants(constants: Mapping[str, Array], plan: BufferPlan) -> Array:
    """Return the bytes of all constants at their places."""
    packed = _aligned(plan.constant_bytes)
    for name, values in constants.items():
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        packed[plan.offsets[name] : plan.offsets[name] + data.size] = data
    return packed


def _stop(module: LoadedModule) -> None:
    """End the threads before the code that they run goes away."""
    ctypes.CFUNCTYPE(None)(module.address(stop_name(_NAMES.prefix)))()


def _addresses(arrays: Sequence[Array]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def _aligned(size_bytes: int) -> Array:
    """Return zeros at an aligned address, on huge pages where there are some and they fill one."""
    huge = size_bytes >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE")
    alignment = _HUGE_PAGE_BYTES if huge else ALIGNMENT_BYTES
    if huge:
        pages = mmap.mmap(-1, size_bytes + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
        memory = np.frombuffer(pages, np.uint8)
    else:
        memory = np.zeros(size_bytes + alignment, np.uint8)
    skip = -memory.ctypes.data % alignment
    aligned: Array = memory[skip : skip + size_bytes]
    return aligned
