"""The base of all units: a `wiring.Component` whose ports the type checker does not know."""

from typing import TYPE_CHECKING, Any

from amaranth.lib import wiring

if TYPE_CHECKING:

    class Unit(wiring.Component[Any]):
        """A unit of the hardware; its ports become attributes when it is made."""

        def __getattr__(self, name: str) -> Any: ...
else:
    Unit = wiring.Component
