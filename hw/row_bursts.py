"""Cuts the rows of a strided transfer into bursts, one burst per cycle."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import ADDRESS_BITS, EXTENT_BITS


def transfer_layout(row_bytes_bits: int) -> data.StructLayout:
    """Rows in DRAM: their number, length and distance, as `Load` and `Store` give them."""
    return data.StructLayout(
        {
            "address": unsigned(ADDRESS_BITS),
            "row_bytes": unsigned(row_bytes_bits),
            "rows": unsigned(EXTENT_BITS),
            "planes": unsigned(EXTENT_BITS),
            "row_stride": unsigned(ADDRESS_BITS),
            "plane_stride": unsigned(ADDRESS_BITS),
        }
    )


class RowBursts(Unit):
    """Makes the bursts of all rows of a transfer in order.

    A row is cut at every multiple of `burst_bytes`; a burst holds whole beats, of which the first
    and the last may reach beyond the row. The first burst of a transfer taken in cycle c is there
    in c + 2, and each next one in the cycle after the handshake of the one before. A transfer
    without rows or bytes makes none, and the next one is taken two cycles later.

    Attributes
    ----------
    transfer
        Transfers come in; ready from the cycle after the last burst.
    burst
        Address of the first beat, number of beats less one, byte of the first beat at which the
        row begins (0 where the row began before), whether the row and the transfer end with it.
    """

    def __init__(self, config: AcceleratorConfig, *, row_bytes_bits: int) -> None:
        self._config = config
        self._beat_bits = (config.port_bytes - 1).bit_length()
        self._burst_bits = (config.burst_beats - 1).bit_length()
        self._transfer = transfer_layout(row_bytes_bits)
        burst = data.StructLayout(
            {
                "address": unsigned(ADDRESS_BITS),
                "length": unsigned(self._burst_bits),
                "offset": unsigned(self._beat_bits),
                "ends_row": unsigned(1),
                "ends_transfer": unsigned(1),
            }
        )
        super().__init__(
            {
                "transfer": In(stream.Signature(self._transfer)),
                "burst": Out(stream.Signature(burst)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        setting_up, active = Signal(), Signal()
        last_row = Signal()
        advance, sent = Signal(), Signal()
        burst = self.burst.payload
        m.d.comb += [
            self.transfer.ready.eq(~setting_up & ~active),
            self.burst.valid.eq(active),
            burst.ends_transfer.eq(burst.ends_row & last_row),
            sent.eq(active & self.burst.ready),
            advance.eq(setting_up | (sent & burst.ends_row & ~last_row)),
        ]
        current, row_address = self._rows(m, advance, last_row)
        m.d.sync += setting_up.eq(self.transfer.valid & self.transfer.ready)
        with m.If(setting_up):
            m.d.sync += active.eq((current.row_bytes != 0) & (current.rows != 0))
        with m.Elif(sent & burst.ends_transfer):
            m.d.sync += active.eq(0)
        self._cut(m, current.row_bytes, row_address, advance, sent)
        return m

    def _cut(
        self, m: Module, row_bytes: Value, row_address: Value, advance: Signal, sent: Signal
    ) -> None:
        """Begin a row, or go on to the next burst of the present one.

        What is said of a burst lies in registers, as long paths begin here.
        """
        burst = self.burst.payload
        block_bits = self._beat_bits + self._burst_bits
        beat_index = Signal(ADDRESS_BITS - self._beat_bits)
        # Of the last byte of a row, counted from the first byte of the block where the row begins:
        # its block, and its beat within that.
        last_byte: Any = Signal(row_bytes.shape().width + block_bits)
        last_block, last_beat = last_byte[block_bits:], last_byte[self._beat_bits : block_bits]
        blocks_left = Signal.like(last_block)
        row_ends_at = Signal(self._burst_bits)
        full = self._config.burst_beats - 1
        first_beat = row_address[self._beat_bits : block_bits]
        ends_at = Mux(last_block == 0, last_beat, full)
        m.d.comb += [
            burst.address.eq(Cat(Const(0, self._beat_bits), beat_index)),
            last_byte.eq(row_bytes + (row_address[:block_bits] - 1)),
        ]
        with m.If(advance):
            m.d.sync += [
                beat_index.eq(row_address[self._beat_bits :]),
                burst.offset.eq(row_address[: self._beat_bits]),
                burst.length.eq(ends_at - first_beat),
                burst.ends_row.eq(last_block == 0),
                blocks_left.eq(last_block),
                row_ends_at.eq(last_beat),
            ]
        with m.Elif(sent):
            m.d.sync += [
                beat_index.eq(Cat(Const(0, self._burst_bits), beat_index[self._burst_bits :] + 1)),
                burst.offset.eq(0),
                burst.length.eq(Mux(blocks_left == 1, row_ends_at, full)),
                burst.ends_row.eq(blocks_left == 1),
                blocks_left.eq(blocks_left - 1),
            ]

    def _rows(self, m: Module, advance: Signal, last_row: Signal) -> tuple[Any, Signal]:
        """Walk over the rows; returns the transfer and the address of the row to come."""
        current: Any = Signal(self._transfer)
        payload = self.transfer.payload
        row_address = Signal(ADDRESS_BITS)
        plane_address = Signal(ADDRESS_BITS)
        rows_left = Signal(EXTENT_BITS)
        planes_left = Signal(EXTENT_BITS)
        ends_plane = Signal()
        following = Signal(ADDRESS_BITS)
        m.d.comb += [
            ends_plane.eq(rows_left == 1),
            following.eq(
                Mux(ends_plane, plane_address, row_address)
                + Mux(ends_plane, current.plane_stride, current.row_stride)
            ),
        ]
        # Whether a transfer comes is known late, and what is kept without one does no harm.
        with m.If(self.transfer.ready):
            m.d.sync += [
                current.eq(payload),
                row_address.eq(payload.address),
                plane_address.eq(payload.address),
                rows_left.eq(payload.rows),
                planes_left.eq(payload.planes),
            ]
        with m.Elif(advance):
            m.d.sync += [
                last_row.eq(ends_plane & (planes_left == 1)),
                row_address.eq(following),
            ]
            with m.If(ends_plane):
                m.d.sync += [
                    plane_address.eq(following),
                    rows_left.eq(current.rows),
                    planes_left.eq(planes_left - 1),
                ]
            with m.Else():
                m.d.sync += rows_left.eq(rows_left - 1)
        return current, row_address
