"""Processors that code is generated for: LLVM's names, instruction set extensions, registers."""

from dataclasses import dataclass
from enum import Enum

from tilewright.isa.errors import InputError


class Feature(Enum):
    """An extension of the instruction set that code generation looks at; the value is LLVM's."""

    AVX2 = "avx2"
    FMA = "fma"
    AVX512F = "avx512f"
    AVX512VL = "avx512vl"
    AVX512VBMI = "avx512vbmi"
    AVX512VNNI = "avx512vnni"
    AVX512BF16 = "avx512bf16"
    NEON = "neon"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget:
    """A processor as the code generator sees it.

    Attributes
    ----------
    name
        How tilewright calls it.
    triple, cpu, attributes
        LLVM's target triple, processor name and feature string.
    features
        What of the instruction set the kernels choose by.
    """

    name: str
    triple: str
    cpu: str
    attributes: str
    features: frozenset[Feature]

    @property
    def vector_bytes(self) -> int:
        """Width of a vector register."""
        if Feature.AVX512F in self.features:
            return 64
        return 32 if Feature.AVX2 in self.features else 16

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are."""
        if Feature.AVX512F in self.features or self.triple.startswith("aarch64"):
            return 32
        return 16

    @property
    def fuses_products(self) -> bool:
        """Whether one instruction multiplies and adds; rounding in between costs nothing more."""
        return Feature.FMA in self.features or self.triple.startswith("aarch64")

    @property
    def multiplies_bytes(self) -> bool:
        """Whether it has an instruction for sums of four products of bytes."""
        return {Feature.AVX512VNNI, Feature.AVX512VL} <= self.features

    @property
    def multiplies_halves(self) -> bool:
        """Whether it has instructions for bfloat16 numbers: sums of two products, and rounding."""
        return {Feature.AVX512BF16, Feature.AVX512VL} <= self.features

    @property
    def permutes_bytes(self) -> bool:
        """Whether instructions look up bytes in tables of bytes."""
        return {Feature.AVX512VBMI, Feature.AVX512F} <= self.features


#: A line of the caches, on every processor that we know.
LINE_BYTES = 64
#: The processors of Zynq-7000 and of Zynq UltraScale+.
CORTEX_A9 = CpuTarget(
    name="cortex-a9",
    triple="armv7-unknown-linux-gnueabihf",
    cpu="cortex-a9",
    attributes="+neon,+vfp3",
    features=frozenset({Feature.NEON}),
)
CORTEX_A53 = CpuTarget(
    name="cortex-a53",
    triple="aarch64-unknown-linux-gnu",
    cpu="cortex-a53",
    attributes="+neon",
    features=frozenset({Feature.NEON}),
)
#: Any x86-64 processor since 2013: AVX2 and FMA.
X86_64_V3 = CpuTarget(
    name="x86-64-v3",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v3",
    attributes="",
    features=frozenset({Feature.AVX2, Feature.FMA}),
)
CROSS_TARGETS = (CORTEX_A9, CORTEX_A53, X86_64_V3)


def host_target() -> CpuTarget:
    """Return the processor that this runs on.

    Raises
    ------
    InputError
        If it is of a family that no code is generated for, or an x86 without AVX2 and FMA.
    """
    import llvmlite.binding as llvm

    triple = llvm.get_default_triple()
    available = llvm.get_host_cpu_features()
    features = frozenset(feature for feature in Feature if available.get(feature.value))
    family = triple.split("-")[0]
    if family == "x86_64":
        if missing := [f.value for f in (Feature.AVX2, Feature.FMA) if f not in features]:
            raise InputError(f"device 'cpu' needs {' and '.join(missing)}, which is missing here")
    elif not family.startswith(("aarch64", "armv7")):
        raise InputError(f"device 'cpu' does not know processors of the family {family!r}")
    attributes: list[str] = [available.flatten()]
    if Feature.AVX512F in features:
        attributes.append("-prefer-256-bit")
    return CpuTarget(
        name="host",
        triple=triple,
        cpu=llvm.get_host_cpu_name(),
        attributes=",".join(attributes),
        features=features,
    )


def find_target(name: str) -> CpuTarget:
    """Return the processor of that name; ``host`` is the one at hand.

    Raises
    ------
    InputError
        If there is none.
    """
    known = {target.name: target for target in CROSS_TARGETS}
    if name == "host":
        return host_target()
    if name not in known:
        raise InputError(
            f"there is no processor {name!r}", hint=f"processors: host, {', '.join(known)}"
        )
    return known[name]
