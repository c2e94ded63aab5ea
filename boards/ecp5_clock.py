"""The clock of an ECP5: an EHXPLLL with its feedback from its output."""

from dataclasses import dataclass

from tilewright.isa.errors import ConfigError

#: Limits of the oscillator and of the comparison, in MHz (FPGA-DS-02012, table 3.27).
_OSCILLATOR_MHZ = (400.0, 800.0)
_COMPARISON_MHZ = (3.125, 400.0)
_DIVISORS = range(1, 129)
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecp5Pll:
    """Divisors of a PLL: output = input / `input_divisor` * `feedback_divisor`."""

    input_mhz: float
    input_divisor: int
    feedback_divisor: int
    #: Oscillator to output.
    output_divisor: int

    @property
    def mhz(self) -> float:
        """Frequency of the output."""
        return self.input_mhz / self.input_divisor * self.feedback_divisor


def find_pll(input_mhz: float, mhz: float) -> Ecp5Pll:
    """Find divisors for a frequency; the fastest comparison, and the oscillator in its middle.

    Raises
    ------
    ConfigError
        If no divisors make it.
    """
    for input_divisor in _DIVISORS:
        comparison = input_mhz / input_divisor
        feedback = round(mhz / comparison)
        if comparison < _COMPARISON_MHZ[0] or feedback not in _DIVISORS:
            continue
        if abs(comparison * feedback / mhz - 1) > _TOLERANCE:
            continue
        low, high = _OSCILLATOR_MHZ
        middle = (low + high) / 2
        output = min(_DIVISORS, key=lambda divisor: abs(mhz * divisor - middle))
        if low <= mhz * output <= high:
            return Ecp5Pll(
                input_mhz=input_mhz,
                input_divisor=input_divisor,
                feedback_divisor=feedback,
                output_divisor=output,
            )
    raise ConfigError(f"a PLL cannot make {mhz:g} MHz of {input_mhz:g} MHz")
