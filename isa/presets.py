"""Configurations of the boards and of the comparisons that tilewright is used for.

Shares of the memory, by the gaps between bursts of 16 beats, add up to no more than its theoretical
bandwidth:

- PYNQ-Z1, PYNQ-Z2: DDR3, 16 bit at 1050 MT/s, 2.1 GB/s: 14 bytes per cycle at 150 MHz and 21 at
  100 MHz. Load gets 7.1 of 8 bytes per cycle, store 6.7 (7.1 at 100 MHz).
- Ultra96: LPDDR4, 32 bit at 2133 MT/s, 8.5 GB/s: 28.4 bytes per cycle at 300 MHz, 14.2 of 16 for
  load and as much for store.
- ULX3S: SDRAM, 16 bit at 120 MHz, 240 MB/s: 4 bytes per cycle at 60 MHz, 2.7 for load and 1.3 for
  store.

What a DDR controller sustains is less, at most 75 % on the Zynq-7000 (UG585, section 22.3.2), which
matters only while load and store both run at their full share: a program whose traffic averages
more than 10.5 bytes per cycle on a PYNQ board is faster here than there.

Latencies are assumptions, not measurements: about 270 ns for a read and 160 ns for a write through
an HP port of either Zynq, and what an SDRAM controller takes for the ULX3S.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.isa.config import AcceleratorConfig, DramModel

#: VTA's default sizes (apache/tvm-vta `config/vta_config.json`, pynq 1x16x16), for comparison with
#: VTA's published measurements.
VTA = AcceleratorConfig(
    name="vta",
    block_in=16,
    block_out=16,
    inp_entries=2048,
    wgt_entries=1024,
    acc_entries=2048,
    vec_entries=2048,
    coef_entries=512,
    prm_entries=512,
    out_entries=2048,
    gemm_uop_entries=4096,
    vector_uop_entries=1024,
    clock_mhz=100.0,
    dram=DramModel(
        read_latency_cycles=28,
        write_latency_cycles=16,
        read_gap_cycles=2,
        write_gap_cycles=2,
        size_bytes=1 << 29,
    ),
)

#: PYNQ-Z1 and PYNQ-Z2: an XC7Z020, HP ports of 64 bit.
PYNQ = VTA.replace(
    name="pynq",
    acc_entries=1024,
    vec_entries=1024,
    out_entries=1024,
    gemm_uop_entries=1024,
    vector_uop_entries=512,
    packed_multipliers=True,
    clock_mhz=150.0,
    dram=DramModel(
        read_latency_cycles=40,
        write_latency_cycles=24,
        read_gap_cycles=2,
        write_gap_cycles=3,
        size_bytes=1 << 29,
    ),
)

#: Ultra96: an XCZU3EG, HP ports of 128 bit.
ULTRA96 = PYNQ.replace(
    name="ultra96",
    block_out=32,
    wgt_entries=512,
    port_bits=128,
    clock_mhz=300.0,
    load_bursts=16,
    store_bursts=16,
    dram=DramModel(
        read_latency_cycles=75,
        write_latency_cycles=45,
        read_gap_cycles=2,
        write_gap_cycles=2,
        size_bytes=1 << 31,
    ),
)

#: A small machine for the LFE5U-85F.
ECP5 = AcceleratorConfig(
    name="ecp5",
    block_in=8,
    block_out=8,
    inp_entries=1024,
    wgt_entries=512,
    acc_entries=512,
    vec_entries=512,
    coef_entries=256,
    prm_entries=128,
    out_entries=512,
    gemm_uop_entries=512,
    vector_uop_entries=256,
    queue_entries=8,
    load_bursts=4,
    store_bursts=4,
    clock_mhz=60.0,
    dram=DramModel(
        read_latency_cycles=16,
        write_latency_cycles=8,
        read_gap_cycles=32,
        write_gap_cycles=80,
        size_bytes=1 << 25,
    ),
)

#: The smallest machine worth simulating as RTL; entries are narrower than a beat.
TINY = AcceleratorConfig(
    name="tiny",
    block_in=4,
    block_out=4,
    inp_entries=256,
    wgt_entries=64,
    acc_entries=64,
    vec_entries=256,
    coef_entries=64,
    prm_entries=32,
    out_entries=64,
    gemm_uop_entries=64,
    vector_uop_entries=64,
    queue_entries=4,
    load_bursts=2,
    store_bursts=2,
    token_limit=63,
    clock_mhz=50.0,
    dram=DramModel(
        read_latency_cycles=12,
        write_latency_cycles=6,
        read_gap_cycles=1,
        write_gap_cycles=1,
        size_bytes=1 << 24,
    ),
)

#: Every preset by name.
PRESETS: Mapping[str, AcceleratorConfig] = MappingProxyType(
    {preset.name: preset for preset in (VTA, PYNQ, ULTRA96, ECP5, TINY)}
)
