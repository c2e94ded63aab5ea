"""The sizes of one accelerator and of the memory it is attached to."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from typing_extensions import Self

from tilewright.isa.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DramModel:
    """Timing of the external memory as each port sees it: a latency-rate server per port.

    The accelerator has three memory ports: instruction fetch (read), load (read), store (write).
    A port moves at most one beat per cycle and pauses for its gap after each burst; its
    first beat of data comes `read_latency_cycles` after the address was taken. Ports do not slow
    each other down: each has a guaranteed share, as predictable memory controllers give (the
    latency-rate server of Stiliadis and Varma, IEEE/ACM Transactions on Networking, 1998), so the
    gaps must be chosen such that the shares of load and store add up to no more than the memory
    can deliver. Fetch moves one or two per cent of the bytes and is not counted.
    """

    #: Cycles from the address of a read burst to its first beat.
    read_latency_cycles: int
    #: Cycles from the last beat of a write burst to its response.
    write_latency_cycles: int
    #: Idle cycles of a read port after each burst.
    read_gap_cycles: int
    #: Idle cycles of the write port after each burst.
    write_gap_cycles: int
    #: Bytes that programs may address.
    size_bytes: int

    def __post_init__(self) -> None:
        _require(self, "read_latency_cycles", 2, 4095, prefix="dram.")
        _require(self, "write_latency_cycles", 2, 4095, prefix="dram.")
        _require(self, "read_gap_cycles", 0, 255, prefix="dram.")
        _require(self, "write_gap_cycles", 0, 255, prefix="dram.")
        _require(self, "size_bytes", 4096, 1 << 32, prefix="dram.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorConfig:
    """One accelerator: array shape, scratchpad depths, queues, ports, options, clock and memory.

    Sizes are given as themselves. Scratchpad depths count entries; what an entry is, see
    `tilewright.isa.memories`. Change a configuration with `replace`.
    """

    #: Name of the configuration.
    name: str
    #: Images that one activation entry holds.
    batch: int = 1
    #: Input channels that the array reduces per cycle.
    block_in: int
    #: Output channels that the array computes per cycle, and lanes of the vector engine.
    block_out: int
    #: Depth of `inp`: activations for the array, batch x block_in int8.
    inp_entries: int
    #: Depth of `wgt`: weights for the array, block_out x block_in int8.
    wgt_entries: int
    #: Depth of `acc`: accumulators, batch x block_out int32, two banks of half the depth.
    acc_entries: int
    #: Depth of `vec`: activations for the vector engine, batch x block_out int8.
    vec_entries: int
    #: Depth of `coef`: lane coefficients (depthwise weights), block_out int16.
    coef_entries: int
    #: Depth of `prm`: requantisation parameters of block_out channels.
    prm_entries: int
    #: Depth of `out`: results, batch x block_out int8.
    out_entries: int
    #: Depth of `guop`: micro-ops of the gemm engine.
    gemm_uop_entries: int
    #: Depth of `vuop`: micro-ops of the vector engine.
    vector_uop_entries: int
    #: Number of 256-entry look-up tables in `lut`.
    lut_tables: int = 1
    #: Instructions that each engine's queue holds.
    queue_entries: int = 16
    #: Largest count of a token counter.
    token_limit: int = 255
    #: Instructions that the fetch buffer holds (two bursts).
    fetch_entries: int = 8
    #: Width of each memory port.
    port_bits: int = 64
    #: Longest burst in beats (16 on AXI3).
    burst_beats: int = 16
    #: Read bursts that the load engine keeps in flight.
    load_bursts: int = 8
    #: Write bursts that the store engine keeps in flight.
    store_bursts: int = 8
    #: Two int8 products per DSP block of the FPGA.
    packed_multipliers: bool = False
    #: DSP blocks of a lane of the vector engine; its other products are made of look-up tables.
    lane_multipliers: int = 3
    #: Clock of the accelerator.
    clock_mhz: float
    #: The external memory.
    dram: DramModel

    def __post_init__(self) -> None:
        for field in ("batch", "block_in", "block_out"):
            _require(self, field, 1, 256)
        for field in _DEPTHS:
            _require(self, field, 2, 1 << 16)
        _require(self, "lut_tables", 1, 16)
        _require(self, "lane_multipliers", 0, 3)
        _require(self, "queue_entries", 2, 1024)
        _require(self, "token_limit", 1, (1 << 16) - 1)
        _require(self, "fetch_entries", 2, 64)
        _require(self, "burst_beats", 1, 256)
        _require(self, "load_bursts", 1, 64)
        _require(self, "store_bursts", 1, 64)
        self._check_shapes()

    def _check_shapes(self) -> None:
        if self.acc_entries % 2:
            raise ConfigError(f"acc_entries must be even (two banks), not {self.acc_entries}")
        if self.port_bits not in (32, 64, 128, 256, 512):
            raise ConfigError(f"port_bits must be 32, 64, 128, 256 or 512, not {self.port_bits}")
        if self.burst_beats & (self.burst_beats - 1):
            raise ConfigError(f"burst_beats must be a power of two, not {self.burst_beats}")
        if self.burst_bytes > 4096:
            raise ConfigError(
                f"burst_beats must keep a burst within 4096 bytes, not {self.burst_bytes}"
            )
        if self.batch > 1 and self.block_in != self.block_out:
            raise ConfigError(
                f"block_in must equal block_out ({self.block_out}) where batch is above 1,"
                f" not {self.block_in}"
            )
        self._check_fetch()
        if not 1 <= self.clock_mhz <= 2000:
            raise ConfigError(f"clock_mhz must be between 1 and 2000, not {self.clock_mhz}")
        for entry_bytes in (
            self.inp_entry_bytes,
            self.lane_entry_bytes,
            self.wgt_entry_bytes,
            self.coef_entry_bytes,
        ):
            if self.port_bytes % entry_bytes and entry_bytes % self.port_bytes:
                raise ConfigError(
                    f"port_bits must give whole entries per beat or whole beats per entry:"
                    f" an entry of {entry_bytes} bytes does not fit {self.port_bytes}-byte beats"
                )

    def _check_fetch(self) -> None:
        """Refuse bursts that hold no instruction, as the fetch port reads whole ones."""
        from tilewright.isa.encoding import instruction_bytes  # its layouts derive from this class

        if self.burst_bytes < instruction_bytes(self):
            raise ConfigError(
                f"burst_beats must give bursts of at least one instruction"
                f" ({instruction_bytes(self)} bytes), not {self.burst_bytes} bytes"
            )

    @property
    def port_bytes(self) -> int:
        """Bytes per beat."""
        return self.port_bits // 8

    @property
    def burst_bytes(self) -> int:
        """Bytes of the longest burst; bursts never cross a multiple of it."""
        return self.burst_beats * self.port_bytes

    @property
    def inp_entry_bytes(self) -> int:
        """Bytes of an entry of `inp`."""
        return self.batch * self.block_in

    @property
    def lane_entry_bytes(self) -> int:
        """Bytes of an entry of `vec` and `out`: one int8 per lane."""
        return self.batch * self.block_out

    @property
    def wgt_entry_bytes(self) -> int:
        """Bytes of an entry of `wgt`."""
        return self.block_out * self.block_in

    @property
    def coef_entry_bytes(self) -> int:
        """Bytes of an entry of `coef`: one int16 per output channel."""
        return self.block_out * 2

    @property
    def acc_bank_entries(self) -> int:
        """Depth of one bank of `acc`."""
        return self.acc_entries // 2

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of the array per cycle."""
        return self.batch * self.block_in * self.block_out

    @property
    def layout_block(self) -> int:
        """Channels of one block of an activation tensor in DRAM: whole entries of both kinds."""
        return math.lcm(self.block_in, self.block_out)

    @property
    def acc_index_bits(self) -> int:
        """Width of an index into `acc`."""
        return index_bits(self.acc_entries)

    @property
    def inp_index_bits(self) -> int:
        """Width of an index into `inp`."""
        return index_bits(self.inp_entries)

    @property
    def wgt_index_bits(self) -> int:
        """Width of an index into `wgt`."""
        return index_bits(self.wgt_entries)

    @property
    def coef_index_bits(self) -> int:
        """Width of an index into `coef`."""
        return index_bits(self.coef_entries)

    @property
    def prm_index_bits(self) -> int:
        """Width of an index into `prm`."""
        return index_bits(self.prm_entries)

    @property
    def out_index_bits(self) -> int:
        """Width of an index into `out`."""
        return index_bits(self.out_entries)

    @property
    def result_index_bits(self) -> int:
        """Width of the destination of a vector instruction: an index into `out` or `acc`."""
        return max(self.out_index_bits, self.acc_index_bits)

    @property
    def operand_bits(self) -> int:
        """Width of a vector operand address: `vec` from 0, `acc` from `acc_operand_base`."""
        return 1 + max(index_bits(self.vec_entries), self.acc_index_bits)

    @property
    def acc_operand_base(self) -> int:
        """Vector operand address of the first entry of `acc`."""
        return 1 << (self.operand_bits - 1)

    @property
    def gemm_uop_index_bits(self) -> int:
        """Width of an index into `guop`."""
        return index_bits(self.gemm_uop_entries)

    @property
    def gemm_uop_count_bits(self) -> int:
        """Width of a count of entries of `guop`."""
        return self.gemm_uop_entries.bit_length()

    @property
    def vector_uop_index_bits(self) -> int:
        """Width of an index into `vuop`."""
        return index_bits(self.vector_uop_entries)

    @property
    def vector_uop_count_bits(self) -> int:
        """Width of a count of entries of `vuop`."""
        return self.vector_uop_entries.bit_length()

    @property
    def lut_index_bits(self) -> int:
        """Width of the number of a look-up table."""
        return index_bits(self.lut_tables)

    @property
    def scratch_index_bits(self) -> int:
        """Width of an index into the deepest scratchpad that the load engine writes."""
        depths = (getattr(self, field) for field in _DEPTHS if field not in ("acc_entries",))
        return index_bits(max(*depths, self.lut_tables))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; unknown fields raise `ConfigError`.

        Fields of the memory model are reached with the prefix ``dram.``, for example
        ``config.replace(**{"dram.read_latency_cycles": 60})``.
        """
        dram = {key[5:]: value for key, value in changes.items() if key.startswith("dram.")}
        own = {key: value for key, value in changes.items() if not key.startswith("dram.")}
        _reject_unknown(own, AcceleratorConfig)
        _reject_unknown(dram, DramModel, prefix="dram.")
        if dram:
            own["dram"] = replace(own.get("dram", self.dram), **dram)
        return replace(self, **own)


def index_bits(entries: int) -> int:
    """Width of an index below `entries`."""
    return max(1, (entries - 1).bit_length())


#: Fields that say how fast the memory is, which no hardware is built of.
MODEL_FIELDS = ("dram.read_latency_cycles", "dram.write_latency_cycles", "dram.read_gap_cycles")


def with_memory_speed(config: AcceleratorConfig, other: AcceleratorConfig) -> AcceleratorConfig:
    """Return a machine with `MODEL_FIELDS` as another configuration has them."""
    speed = {name: getattr(other.dram, name.removeprefix("dram.")) for name in MODEL_FIELDS}
    return config.replace(**speed)


def differing_fields(first: AcceleratorConfig, second: AcceleratorConfig) -> tuple[str, ...]:
    """Name the fields in which two configurations differ, memory fields as ``dram.<field>``."""
    names = [
        field.name
        for field in fields(AcceleratorConfig)
        if field.name != "dram" and getattr(first, field.name) != getattr(second, field.name)
    ]
    names += [
        f"dram.{field.name}"
        for field in fields(DramModel)
        if getattr(first.dram, field.name) != getattr(second.dram, field.name)
    ]
    return tuple(names)


_DEPTHS = (
    "inp_entries",
    "wgt_entries",
    "acc_entries",
    "vec_entries",
    "coef_entries",
    "prm_entries",
    "out_entries",
    "gemm_uop_entries",
    "vector_uop_entries",
)


def _require(holder: object, field: str, low: int, high: int, *, prefix: str = "") -> None:
    value = getattr(holder, field)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{prefix}{field} must be an integer from {low} to {high}, not {value!r}")


def _reject_unknown(changes: dict[str, Any], owner: type[Any], *, prefix: str = "") -> None:
    known = {field.name for field in fields(owner)}
    for key in changes:
        if key not in known:
            raise ConfigError(
                f"a configuration has no field {prefix + key!r}",
                hint=f"fields: {', '.join(sorted(prefix + name for name in known))}",
            )
