"""Loop levels of instructions whose strides are zero where they run only once."""

from tilewright.isa.instructions import GemmLoop, VectorLoop


def vector_loop(
    extent: int, *, dst: int = 0, src: int = 0, coef: int = 0, prm: int = 0
) -> VectorLoop:
    """Return a loop level of `Vector`."""
    if extent == 1:
        return VectorLoop()
    return VectorLoop(extent=extent, dst=dst, src=src, coef=coef, prm=prm)


def gemm_loop(extent: int, *, dst: int = 0, src: int = 0, wgt: int = 0) -> GemmLoop:
    """Return a loop level of `Gemm`."""
    return GemmLoop() if extent == 1 else GemmLoop(extent=extent, dst=dst, src=src, wgt=wgt)
