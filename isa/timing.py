"""How long each engine takes: the constants and formulas that hardware and simulator share.

`docs/microarchitecture.md` states the rules in full. All numbers are clock cycles.
"""

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import Gemm, Vector
from tilewright.isa.memories import Memory, memory_shape

#: From the cycle an instruction enters a queue to the first cycle in which it may start.
QUEUE_CYCLES = 1
#: From the cycle an engine finishes an instruction to the first cycle its token can be taken.
TOKEN_CYCLES = 1
#: From the start of a `Load` to its first address on the port, or its first padding entry.
LOAD_START_CYCLES = 2
#: From a step of the write stage, which reads the data buffer, to the write of the scratchpad:
#: alignment and write.
LOAD_WRITE_CYCLES = 2
#: `Load` instructions whose addresses may be sent before the oldest has been written.
LOADS_AHEAD = 4
#: From the start of a `Store` to its first step, which reads `out`.
STORE_START_CYCLES = 2
#: From a step of a `Store` to the beat that it completes on the port: scratchpad read, alignment.
STORE_DATA_CYCLES = 2
#: From the start of a `Gemm` or `Vector` to the issue of its first step.
ISSUE_START_CYCLES = 2
#: Stages of the gemm engine besides the adder tree: micro-op read, address, scratchpad read,
#: operand register, multiply (two), run accumulate beside accumulator read, accumulator register,
#: accumulator add; the write follows.
GEMM_FIXED_STAGES = 9
#: Stages of the vector engine: micro-op read, address, bank select, scratchpad read, operand
#: register, multiply (two), run accumulate, bias, scale (three), shift (two), saturate, round and
#: zero point, clip, look-up (two), write.
VECTOR_STAGES = 19
#: From the arrival of the last engine's completion to `FINISH`.
FINISH_CYCLES = 1


def gemm_stages(config: AcceleratorConfig) -> int:
    """Cycles from the issue of a step to the write of its run into `acc`.

    The adder tree over `block_in` products has one register per level.
    """
    return GEMM_FIXED_STAGES + (config.block_in - 1).bit_length()


def steps(instruction: Gemm | Vector) -> int:
    """Steps of an instruction: one per micro-op and iteration, one issued per cycle."""
    count = instruction.uop_count
    for loop in instruction.loops:
        count *= loop.extent
    return count


def cycles_per_entry(memory: Memory, config: AcceleratorConfig) -> tuple[int, int]:
    """Beats per entry and entries per beat of a scratchpad on a memory port; one of them is 1."""
    entry_bytes = memory_shape(memory, config).entry_bytes
    return max(1, entry_bytes // config.port_bytes), max(1, config.port_bytes // entry_bytes)


def fetch_burst_instructions(config: AcceleratorConfig) -> int:
    """Instructions per fetch burst: at most half the fetch buffer and one longest burst.

    A power of two, so that a burst which begins at a multiple of its length crosses no page.
    """
    most = min(config.fetch_entries // 2, config.burst_bytes // instruction_bytes(config))
    return 1 << (most.bit_length() - 1)
