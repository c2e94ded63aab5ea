"""Hardware-software co-design around one configurable FPGA accelerator."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.public import (
        AcceleratorConfig,
        CompiledModel,
        Model,
        QuantizedModel,
        TilewrightError,
        Tuning,
        compare,
        compile,
        diff,
        errors,
        load,
        presets,
        quantize,
        selftest,
    )

__version__ = "0.1.0"

__all__ = [
    "AcceleratorConfig",
    "CompiledModel",
    "Model",
    "QuantizedModel",
    "TilewrightError",
    "Tuning",
    "__version__",
    "compare",
    "compile",
    "diff",
    "errors",
    "load",
    "presets",
    "quantize",
    "selftest",
]


def __getattr__(name: str) -> object:
    # A program that only needs `tilewright.isa` does not pay for the compiler.
    if name not in __all__:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    from tilewright import public

    return getattr(public, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
