"""A loop nest as a function of the addresses of its tensors."""

from dataclasses import dataclass

from llvmlite import ir

from tilewright.compiler.tensor.distribute import synchronise_threads
from tilewright.compiler.tensor.statements import For, LoopKind, LoopNest
from tilewright.cpu_gpu_backends.codegen.frame import Frame, Storage
from tilewright.cpu_gpu_backends.codegen.statements import StatementEmitter, contiguous_strides
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.codegen.types import INDEX, POINTER, index


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """How kernels are generated."""

    target: CpuTarget
    #: Check every access against its tensor's shape, and return from the kernel at the first fault.
    check_bounds: bool = False
    #: Count the cycles of each kernel.
    profile: bool = False


def parallel_extent(nest: LoopNest) -> int:
    """Return how many independent shares the work of a nest has; 1 if its outer loop is serial."""
    body = nest.body
    return body.extent if isinstance(body, For) and body.kind is LoopKind.PARALLEL else 1


def emit_kernel(
    module: ir.Module,
    name: str,
    nest: LoopNest,
    strides: tuple[tuple[int, ...] | None, ...],
    options: KernelOptions,
) -> ir.Function:
    """Emit ``void name(inputs..., outputs..., begin, end)``: shares begin to end - 1 of the work.

    Parameters
    ----------
    strides
        Per input, then per output, its strides in elements; None where it is row-major.
    """
    nest = synchronise_threads(nest)
    tensors = (*nest.inputs, *nest.outputs)
    kind = ir.FunctionType(ir.VoidType(), (*(POINTER for _ in tensors), INDEX, INDEX))
    function = ir.Function(module, kind, name=name)
    function.linkage = "internal"
    for argument in function.args[: len(tensors)]:
        argument.add_attribute("noalias")
    function.append_basic_block("entry")
    start = function.append_basic_block("start")
    frame = Frame(
        builder=ir.IRBuilder(start),
        target=options.target,
        check_bounds=options.check_bounds,
        ahead=dict(nest.ahead),
    )
    for tensor, pointer, given in zip(tensors, function.args, strides, strict=False):
        steps = contiguous_strides(tensor.shape) if given is None else given
        frame.storages[tensor.name] = Storage(tensor=tensor, pointer=pointer, strides=steps)
    _emit_shares(frame, nest, function.args[-2], function.args[-1])
    frame.builder.ret_void()
    with frame.builder.goto_block(function.entry_basic_block):
        frame.builder.branch(start)
    return function


def _emit_shares(frame: Frame, nest: LoopNest, begin: ir.Value, end: ir.Value) -> None:
    emitter, body = StatementEmitter(frame), nest.body
    if isinstance(body, For) and body.kind is LoopKind.PARALLEL:
        emitter.counted_loop(body, begin, end)
        return
    run, done = frame.block("run"), frame.block("done")
    frame.builder.cbranch(frame.builder.icmp_signed("<", index(0), end), run, done)
    frame.enter(run)
    emitter.emit(body)
    frame.builder.branch(done)
    frame.enter(done)
