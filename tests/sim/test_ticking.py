"""The simulator's cycles equal those of a machine that ticks."""

from pathlib import Path

import pytest
from ticking import KINDS, Machine

import tilewright
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Program
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.random_programs import random_program

TINY = PRESETS["tiny"]
CONFIGS = {
    "tiny": TINY,
    "ecp5": PRESETS["ecp5"],
    "pynq": PRESETS["pynq"],
    "ultra96": PRESETS["ultra96"],
    "short bursts": TINY.replace(burst_beats=4),
    "single beats": TINY.replace(port_bits=256, burst_beats=1),
    "one burst": TINY.replace(load_bursts=1, store_bursts=1),
    "short queues": TINY.replace(queue_entries=2, fetch_entries=2),
    "no gap": TINY.replace(**{"dram.read_gap_cycles": 0, "dram.write_gap_cycles": 0}),
    "fast memory": TINY.replace(
        load_bursts=3, **{"dram.read_latency_cycles": 2, "dram.write_latency_cycles": 2}
    ),
    "slow memory": TINY.replace(
        load_bursts=7, **{"dram.read_latency_cycles": 150, "dram.read_gap_cycles": 9}
    ),
    "32 bit": TINY.replace(port_bits=32, fetch_entries=3),
    "128 bit": PRESETS["ecp5"].replace(port_bits=128, fetch_entries=16),
    "512 bit": TINY.replace(port_bits=512, fetch_entries=64, burst_beats=4),
    "batch": TINY.replace(batch=2, burst_beats=4),
    "unequal blocks": TINY.replace(block_in=16, block_out=2, acc_entries=48, wgt_entries=50),
    "gap of beats": TINY.replace(block_in=24, block_out=24, burst_beats=4),
}
#: Seeds that every run of the tests takes, and those of the slow ones.
FEW, MANY = range(3), range(3, 20)


def compare(program: Program) -> Machine:
    machine = Machine(program)
    cycles = machine.run()
    timeline = simulate_timing(program)
    queued = range(len(program.instructions) - 1)
    for name, expected in (
        ("dispatch", machine.dispatch),
        ("start", machine.start),
        ("finish", machine.finish),
    ):
        found = getattr(timeline, name)[:-1].tolist()
        assert found == [expected[position] for position in queued], name
    assert timeline.cycles == cycles
    for unit in machine.units:
        account = timeline.account(unit.engine)
        found = {name: getattr(account, name) for name in KINDS}
        found["token_wait"] = sum(account.token_wait)
        assert found == unit.counted, unit.engine
        assert account.cycles == cycles
    return machine


@pytest.mark.parametrize(
    "seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)]
)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_random_programs(config: AcceleratorConfig, seed: int) -> None:
    compare(random_program(config, seed))


@pytest.mark.parametrize("name", ["tiny", "ecp5", "pynq", "ultra96"])
def test_the_demo_network(name: str, repository: Path) -> None:
    """Long transfers, of which the simulator computes few and remembers most."""
    model = tilewright.load(repository / "api/demo/digits.onnx")
    for program in tilewright.compile(model, config=PRESETS[name]).programs:
        compare(program)
