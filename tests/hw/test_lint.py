"""The Verilog of the accelerator and of its test bench is free of lint."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.hw.bench import BENCH_NAME
from tilewright.hw.verilog import (
    ACCELERATOR_NAME,
    LINT_WAIVERS,
    accelerator_verilog,
    bench_verilog,
)
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PRESETS, TINY
from tilewright.sim.rtl_build import ToolError, find_toolchain

#: Where most widths are 0 or 1, and where little is a power of two.
SMALLEST = TINY.replace(
    name="smallest", block_in=1, block_out=1, load_bursts=1, store_bursts=1, burst_beats=4
)
ODD = TINY.replace(
    name="odd",
    block_in=24,
    block_out=12,
    port_bits=32,
    packed_multipliers=True,
    acc_entries=90,
    wgt_entries=33,
    out_entries=37,
)
CONFIGS = [
    TINY,
    *(pytest.param(PRESETS[name], marks=pytest.mark.slow) for name in sorted(PRESETS)),
    pytest.param(SMALLEST, marks=pytest.mark.slow),
    pytest.param(ODD, marks=pytest.mark.slow),
]


def lint(text: str, top: str, folder: Path) -> set[str]:
    """Return the names of all warnings that Verilator has."""
    try:
        tools = find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")
    source = folder / f"{top}.v"
    source.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [tools.verilator, "--lint-only", "-Wall", "--top-module", top, source],
        env={**os.environ, "VERILATOR_ROOT": str(tools.verilator_root)},
        capture_output=True,
        text=True,
        check=False,
    )
    warnings = set(re.findall(r"^%Warning-(\w+)", done.stderr, re.MULTILINE))
    assert bool(warnings) == bool(done.returncode), done.stderr
    return warnings


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize(
    ("write", "top"), [(accelerator_verilog, ACCELERATOR_NAME), (bench_verilog, BENCH_NAME)]
)
def test_no_lint(
    config: AcceleratorConfig,
    write: Callable[[AcceleratorConfig], str],
    top: str,
    tmp_path: Path,
) -> None:
    assert lint(write(config), top, tmp_path) == set()


def test_every_waiver_is_needed(tmp_path: Path) -> None:
    text = accelerator_verilog(TINY)
    bare = re.sub(r"^/\* verilator lint_off .*\n", "", text, flags=re.MULTILINE)
    assert lint(bare, ACCELERATOR_NAME, tmp_path) == {name for name, _ in LINT_WAIVERS}
