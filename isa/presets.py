"""Configurations of the boards and of the comparisons that tilewright is used for."""

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
        read_latency_cycles=28, write_latency_cycles=16, burst_gap_cycles=2, size_bytes=1 << 29
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
        read_latency_cycles=40, write_latency_cycles=24, burst_gap_cycles=2, size_bytes=1 << 29
    ),
)

#: Ultra96: an XCZU3EG, HP ports of 128 bit.
ULTRA96 = PYNQ.replace(
    name="ultra96",
    block_out=32,
    port_bits=128,
    clock_mhz=300.0,
    load_bursts=16,
    store_bursts=16,
    dram=DramModel(
        read_latency_cycles=75, write_latency_cycles=45, burst_gap_cycles=2, size_bytes=1 << 31
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
        read_latency_cycles=16, write_latency_cycles=8, burst_gap_cycles=2, size_bytes=1 << 25
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
        read_latency_cycles=12, write_latency_cycles=6, burst_gap_cycles=1, size_bytes=1 << 24
    ),
)

#: Every preset by name.
PRESETS: Mapping[str, AcceleratorConfig] = MappingProxyType(
    {preset.name: preset for preset in (VTA, PYNQ, ULTRA96, ECP5, TINY)}
)
