"""Counters of the tokens by which engines wait for each other."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import TOKEN_CHANNELS
from tilewright.isa.memories import Engine


class TokenCounters(Unit):
    """One counter per token channel.

    A token given in one cycle can be taken in the next (`TOKEN_CYCLES`).
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._limit = config.token_limit
        engines = len(Engine)
        super().__init__(
            {
                #: Per engine that finishes an instruction, the engines it gives a token to.
                "give": In(engines).array(engines),
                #: Per engine that starts an instruction, the engines it takes a token from.
                "take": In(engines).array(engines),
                #: Per engine, the engines that it can take a token from.
                "present": Out(engines).array(engines),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        for giver, taker in sorted(TOKEN_CHANNELS):
            count = Signal(range(self._limit + 1), name=f"{giver.name}_to_{taker.name}".lower())
            given, taken = self.give[giver][taker], self.take[taker][giver]
            m.d.sync += [
                count.eq(count + given - taken),
                # A register of its own: every start of an instruction begins here.
                self.present[taker][giver].eq(given | Mux(taken, count > 1, count != 0)),
            ]
        return m
