"""Compilation of CUDA C by NVRTC, which needs no GPU."""

from enum import Enum
from typing import Any

from typing_extensions import assert_never

from tilewright.cpu_gpu_backends.gpu.device import DeviceError

#: ``-fmad=false``: products are added in one step only where a kernel says so, so that the bits
#: are those of the graph's definition.
_OPTIONS = ("-std=c++17", "-fmad=false", "-default-device", "-lineinfo")


class Form(Enum):
    """What is compiled to."""

    #: The virtual instruction set of a generation, as text.
    PTX = "compute"
    #: Machine code of one generation.
    CUBIN = "sm"


def compile_cuda(source: str, generation: int, form: Form) -> bytes:
    """Compile CUDA C for a generation, ``80`` standing for compute capability 8.0.

    Raises
    ------
    DeviceError
        If NVRTC is missing, does not know the generation or refuses the source.
    """
    nvrtc = _nvrtc()
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    options = [*_OPTIONS, f"--gpu-architecture={form.value}_{generation}"]
    result = nvrtc.nvrtcCompileProgram(
        program, len(options), [option.encode() for option in options]
    )[0]
    try:
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise DeviceError(
                f"NVRTC cannot compile a kernel for sm_{generation}: {_complaint(nvrtc, program)}"
            )
        match form:
            case Form.PTX:
                data = bytes(_checked(nvrtc.nvrtcGetPTXSize(program)))
                _checked(nvrtc.nvrtcGetPTX(program, data))
            case Form.CUBIN:
                data = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
                _checked(nvrtc.nvrtcGetCUBIN(program, data))
            case _:
                assert_never(form)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    # NVRTC has filled the memory of `data`.
    return data


def nvrtc_version() -> str:
    """Return the version of NVRTC, on which compiled kernels depend.

    Raises
    ------
    DeviceError
        If it is missing.
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise DeviceError(
            "device 'cuda' needs NVRTC and the package cuda-python",
            hint="pip install 'tilewright[cuda]'",
        ) from error
    return nvrtc


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise DeviceError(f"NVRTC failed with {status.name}")
    return values[0] if values else None


def _complaint(nvrtc: Any, program: Any) -> str:
    size = _checked(nvrtc.nvrtcGetProgramLogSize(program))
    log = b" " * size
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    lines = log.decode(errors="replace").rstrip("\0\n ").splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no reason")
