"""A program as object files with a C header, or as a shared library: it runs without Python."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilewright.cpu_gpu_backends.codegen.engine import compile_object
from tilewright.cpu_gpu_backends.codegen.kernels import KernelOptions
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.elf_data import data_object
from tilewright.cpu_gpu_backends.cpu.memory_plan import BufferPlan, plan_buffers
from tilewright.cpu_gpu_backends.cpu.module import Names, program_module
from tilewright.cpu_gpu_backends.cpu.native import pack_constants
from tilewright.cpu_gpu_backends.cpu.program import Buffer, CpuProgram
from tilewright.cpu_gpu_backends.cpu.spin_pool import DISPATCH, spin_pool
from tilewright.isa.errors import CompileError, InputError

#: What links objects for a family of processors, the first one found.
_LINKERS = {
    "x86_64": ("cc", "gcc", "clang"),
    "aarch64": ("aarch64-linux-gnu-gcc",),
    "armv7": ("arm-linux-gnueabihf-gcc",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A network as object files.

    Attributes
    ----------
    prefix
        What the names of its C functions begin with.
    code, constants
        Two object files that belong together.
    header
        Declarations in C, with the sizes of inputs, outputs and workspace.
    workspace_bytes
        Size of the workspace.
    """

    prefix: str
    code: bytes
    constants: bytes
    header: str
    workspace_bytes: int


def build_library(program: CpuProgram, target: CpuTarget, prefix: str | None = None) -> Library:
    """Compile a program ahead of time.

    Parameters
    ----------
    prefix
        By default the program's name with what C does not allow in names replaced.

    Raises
    ------
    InputError
        If the prefix is no name in C.
    """
    names = Names(prefix=c_name(program.name) if prefix is None else prefix)
    if not re.fullmatch(r"[A-Za-z_]\w*", names.prefix, re.ASCII):
        raise InputError(f"prefix must be a name in C, not {names.prefix!r}")
    plan = plan_buffers(program)
    options = KernelOptions(target=target)
    text = program_module(program, plan, options, names, constant_data=True)
    code = compile_object(text, target, (spin_pool(target, names.prefix),), hidden=(DISPATCH,))
    packed = pack_constants(program.constants, plan).tobytes()
    return Library(
        prefix=names.prefix,
        code=code,
        constants=data_object(packed, names.constant_data, target.triple),
        header=_header(program, plan, names.prefix),
        workspace_bytes=plan.workspace_bytes,
    )


def c_name(text: str) -> str:
    """Return a name in C that resembles `text`."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name[:1].isalpha() else f"model_{name}"


def library_files(library: Library, path: Path, target: CpuTarget) -> dict[Path, bytes]:
    """Return the files of a library and of its header beside it.

    A path that ends in ``.so`` becomes a shared library, which takes a linker for the target; any
    other one two object files, ``NAME.o`` and ``NAME.constants.o``, and whoever links them adds
    ``-lpthread -lm``.

    Raises
    ------
    CompileError
        If there is no linker for the target, or it fails.
    """
    header = {path.with_suffix(".h"): library.header.encode()}
    if path.suffix == ".so":
        hint = "object files (.o) need none"
        return {path: _linked(library, target, (), ("-lpthread", "-lm"), hint), **header}
    return {
        path.with_suffix(".o"): library.code,
        path.with_suffix(".constants.o"): library.constants,
        **header,
    }


def link_bare(library: Library, target: CpuTarget) -> bytes:
    """Return a shared library that names no others, for a process that has C's and mathematics.

    So it does not matter which version of them the linker has beside it.

    Raises
    ------
    CompileError
        If there is no linker for the target, or it fails.
    """
    hint = "a model compiled without machine code computes its host steps in numpy"
    return _linked(library, target, ("-nostdlib",), ("-lgcc",), hint)


def _linked(
    library: Library,
    target: CpuTarget,
    options: tuple[str, ...],
    needed: tuple[str, ...],
    hint: str,
) -> bytes:
    """Return a shared library; `hint` says what does without a linker."""
    candidates = _LINKERS[target.triple.split("-")[0]]
    linker = next(filter(None, map(shutil.which, candidates)), None)
    if linker is None:
        raise CompileError(
            f"a shared library for {target.name} needs one of {', '.join(candidates)}", hint=hint
        )
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / "code.o", Path(folder) / "constants.o"]
        result = Path(folder) / "linked.so"
        for file, data in zip(objects, (library.code, library.constants), strict=True):
            file.write_bytes(data)
        files = [str(file) for file in objects]
        command = [linker, "-shared", *options, "-o", str(result), *files, *needed]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise CompileError(f"linking for {target.name} failed: {last}")
        return result.read_bytes()


def _header(program: CpuProgram, plan: BufferPlan, prefix: str) -> str:
    upper = prefix.upper()

    def listing(names: tuple[str, ...]) -> str:
        return "\n".join(
            f" *   {number}  {_described(program.buffers[name])}"
            for number, name in enumerate(names)
        )

    return f"""/* Network {program.name!r}, compiled by tilewright.
 *
 * Inputs:
{listing(program.inputs)}
 * Outputs:
{listing(program.outputs)}
 */
#ifndef {upper}_H
#define {upper}_H

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_INPUTS {len(program.inputs)}
#define {upper}_OUTPUTS {len(program.outputs)}
/* Size of the workspace, which is to be aligned to 64 bytes; its content does not matter. */
#define {upper}_WORKSPACE_BYTES {plan.workspace_bytes}

/* Runs the network once and returns 0. One call at a time. */
int {prefix}_run(const void *const *inputs, void *const *outputs, void *workspace);
/* Lets so many threads, the caller's included, share each operator; returns 0 on success. */
int {prefix}_start(int threads);
/* Ends these threads. */
void {prefix}_stop(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _described(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.elements} x {buffer.dtype}, {buffer.size_bytes} bytes"
