"""Cuts the rows of a strided transfer into bursts, one burst per cycle."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
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
        Address of the first beat, number of beats, byte of the first beat at which the row begins
        (0 where the row began before), and whether the row and the transfer end with it.
    """

    def __init__(self, config: AcceleratorConfig, *, row_bytes_bits: int) -> None:
        self._config = config
        self._beat_bits = (config.port_bytes - 1).bit_length()
        self._burst_bits = (config.burst_beats - 1).bit_length()
        self._transfer = transfer_layout(row_bytes_bits)
        burst = data.StructLayout(
            {
                "address": unsigned(ADDRESS_BITS),
                "beats": unsigned(self._burst_bits + 1),
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
        burst = self.burst.payload
        beat_index = Signal(ADDRESS_BITS - self._beat_bits)
        beats_left: Any = Signal(self._transfer["row_bytes"].width - self._beat_bits + 2)
        room = Signal(self._burst_bits + 1)
        active = Signal()
        last_row = Signal()
        ends_row = Signal()
        m.d.comb += [
            room.eq(self._config.burst_beats - beat_index[: self._burst_bits]),
            ends_row.eq(beats_left <= room),
            self.burst.valid.eq(active),
            burst.address.eq(Cat(Const(0, self._beat_bits), beat_index)),
            burst.beats.eq(Mux(ends_row, beats_left, room)),
            burst.ends_row.eq(ends_row),
            burst.ends_transfer.eq(ends_row & last_row),
        ]
        setting_up = Signal()
        advance = Signal()
        sent = Signal()
        m.d.comb += [
            self.transfer.ready.eq(~setting_up & ~active),
            sent.eq(active & self.burst.ready),
            advance.eq(setting_up | (sent & ends_row & ~last_row)),
        ]
        current, row_address = self._rows(m, advance, last_row)
        offset = row_address[: self._beat_bits]
        row_end: Any = Signal(self._transfer["row_bytes"].width + 2)
        m.d.comb += row_end.eq(current.row_bytes + offset + self._config.port_bytes - 1)
        m.d.sync += setting_up.eq(self.transfer.valid & self.transfer.ready)
        with m.If(setting_up):
            m.d.sync += active.eq((current.row_bytes != 0) & (current.rows != 0))
        with m.Elif(sent & ends_row & last_row):
            m.d.sync += active.eq(0)
        with m.If(advance):
            m.d.sync += [
                beat_index.eq(row_address[self._beat_bits :]),
                beats_left.eq(row_end[self._beat_bits :]),
                burst.offset.eq(offset),
            ]
        with m.Elif(sent):
            m.d.sync += [
                beat_index.eq(Cat(Const(0, self._burst_bits), beat_index[self._burst_bits :] + 1)),
                beats_left.eq(beats_left - room),
                burst.offset.eq(0),
            ]
        return m

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
        with m.If(self.transfer.valid & self.transfer.ready):
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
