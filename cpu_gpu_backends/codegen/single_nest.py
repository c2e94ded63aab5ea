"""One loop nest compiled and run on numpy arrays: for tests, measurements and new operators."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.cpu_gpu_backends.codegen.engine import LoadedModule, load_module
from tilewright.cpu_gpu_backends.codegen.failures import FAILURES, failure_counter
from tilewright.cpu_gpu_backends.codegen.kernels import (
    KernelOptions,
    emit_kernel,
    parallel_extent,
)
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.codegen.types import INDEX, POINTER, index
from tilewright.isa.errors import CompileError, InputError

Array: TypeAlias = npt.NDArray[Any]

_ENTRY = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledNest:
    """A loop nest as machine code."""

    nest: LoopNest
    text: str
    module: LoadedModule

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name.

        Raises
        ------
        InputError
            If an input is missing or has another shape or element type.
        CompileError
            If bounds are checked and an access was out of bounds.
        """
        arrays = [_operand(tensor, inputs) for tensor in self.nest.inputs]
        results = [np.empty(tensor.shape, tensor.dtype.numpy) for tensor in self.nest.outputs]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *results)]
        prototype = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p for _ in pointers))
        prototype(self.module.address(_ENTRY))(*pointers)
        failures = ctypes.c_int64.from_address(self.module.address(FAILURES))
        if failures.value:
            failures.value = 0
            raise CompileError("the loop nest reads or writes outside of a tensor")
        names = [tensor.name for tensor in self.nest.outputs]
        return dict(zip(names, results, strict=True))


def compile_nest(nest: LoopNest, target: CpuTarget, *, check_bounds: bool = False) -> CompiledNest:
    """Compile a loop nest for the processor at hand."""
    text = nest_module(nest, KernelOptions(target=target, check_bounds=check_bounds))
    return CompiledNest(nest=nest, text=text, module=load_module(text, target))


def nest_module(nest: LoopNest, options: KernelOptions) -> str:
    """Return a module, in LLVM's assembly, with a function ``run`` of all tensors' addresses."""
    module = ir.Module(name="nest")
    module.triple = options.target.triple
    failure_counter(module)
    count = len(nest.inputs) + len(nest.outputs)
    kernel = emit_kernel(module, "kernel", nest, (None,) * count, options)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), (POINTER,) * count), name=_ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    builder.call(kernel, (*entry.args, index(0), index(parallel_extent(nest))))
    builder.ret_void()
    assert kernel.args[-1].type == INDEX, "the last two operands are the shares"
    return str(module)


def _operand(tensor: Tensor, inputs: Mapping[str, Array]) -> Array:
    if tensor.name not in inputs:
        raise InputError(f"input {tensor.name!r} is missing")
    array = np.ascontiguousarray(inputs[tensor.name])
    if array.shape != tensor.shape or array.dtype != tensor.dtype.numpy:
        raise InputError(f"input {tensor} is given as {array.dtype}{list(array.shape)}")
    return array
