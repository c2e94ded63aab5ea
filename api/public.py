"""The names that ``import tilewright`` offers."""

from tilewright.isa import errors
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import TilewrightError
from tilewright.isa.presets import PRESETS as presets
from tilewright.runtime.comparison import compare
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.difference import diff
from tilewright.runtime.model import Model, load
from tilewright.runtime.model import compile_model as compile
from tilewright.runtime.quantisation import QuantizedModel, quantize
from tilewright.runtime.selftest import selftest
from tilewright.runtime.tuning import Tuning

__all__ = [
    "AcceleratorConfig",
    "CompiledModel",
    "Model",
    "QuantizedModel",
    "TilewrightError",
    "Tuning",
    "compare",
    "compile",
    "diff",
    "errors",
    "load",
    "presets",
    "quantize",
    "selftest",
]
