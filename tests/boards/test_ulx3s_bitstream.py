"""A bitstream by the open tools alone, for a machine that runs the demo network; part of CI."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import demo
from tilewright.boards.catalogue import ULX3S
from tilewright.boards.project import RECORD_NAME, make_project
from tilewright.boards.toolchains import Toolchain
from tilewright.config_file import parse_config
from tilewright.isa.validator import validate

#: One product per cycle, short queues and 32-bit ports: what is placed and routed in minutes.
LEAST = ULX3S.config.replace(
    name="ulx3s-least",
    clock_mhz=80.0,
    block_in=1,
    block_out=1,
    port_bits=32,
    queue_entries=4,
    fetch_entries=4,
    token_limit=15,
    load_bursts=2,
    store_bursts=2,
)
#: Bytes of a bitstream of an LFE5U-85F: compressed, a design leaves most of its 1.9 MB out.
BITSTREAM_BYTES = range(100_000, 2_000_000)
IMAGES = 4


@pytest.mark.slow
def test_the_open_tools_make_a_bitstream_that_the_demo_network_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(ULX3S, LEAST, Toolchain.TRELLIS)
    if project.missing_tools:
        pytest.skip(f"{', '.join(project.missing_tools)} is missing")
    project.write(tmp_path)
    project.run(tmp_path)
    routed = project.routed_mhz(tmp_path)
    assert routed is not None
    with capsys.disabled():
        sys.stdout.write(f"\n{LEAST.name}: {routed:.1f} MHz after routing\n")
    assert routed >= LEAST.clock_mhz
    bitstream = (tmp_path / project.bitstream).read_bytes()
    # Every ECP5 bitstream has this preamble behind its comment (FPGA-TN-02039).
    assert b"\xff\xff\xbd\xb3" in bitstream[:1024]
    assert len(bitstream) in BITSTREAM_BYTES
    check_demo(parse_config(str(tmp_path / RECORD_NAME)))


def check_demo(config: tw.AcceleratorConfig) -> None:
    """Compile the demo network for what was built, and compare it with its integer graph."""
    assert config == LEAST
    compiled = tw.compile(demo.MODEL_PATH, config=config)
    (program,) = compiled.programs
    validate(program)
    assert program.dram_bytes <= ULX3S.memory.size_bytes
    for image in demo.load_samples().images[:IMAGES]:
        (scores,) = compiled.run(image[None], "sim").outputs.values()
        (expected,) = compiled.run(image[None], "reference").outputs.values()
        np.testing.assert_array_equal(scores, expected)
