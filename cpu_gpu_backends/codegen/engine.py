"""LLVM at work: a module's text to machine code, loaded into the process or as an object file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from tilewright.cpu_gpu_backends.codegen.target import CpuTarget

#: Optimisation level of the code generator; the middle end's passes gain nothing on these nests.
_CODEGEN_LEVEL = 3


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(target: CpuTarget, *, jit: bool) -> llvm.TargetMachine:
    _initialise()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.attributes,
        opt=_CODEGEN_LEVEL,
        reloc="default" if jit else "pic",
        codemodel="jitdefault" if jit else "default",
        jit=jit,
    )


def _prepared(
    text: str, machine: llvm.TargetMachine, libraries: Sequence[str] = ()
) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    for library in libraries:
        module.link_in(llvm.parse_assembly(library))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_dead_code_elimination_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.PipelineTuningOptions()))
    return module


@dataclass(slots=True)
class LoadedModule:
    """Machine code in the process; it is there as long as this object is."""

    _engine: llvm.ExecutionEngine

    def address(self, name: str) -> int:
        """Return the address of a function or variable."""
        found = self._engine.get_function_address(name) or self._engine.get_global_value_address(
            name
        )
        assert found, f"the module defines {name}"
        return int(found)


def load_module(text: str, target: CpuTarget, libraries: Sequence[str] = ()) -> LoadedModule:
    """Compile a module in LLVM's assembly into the process.

    Parameters
    ----------
    libraries
        Modules that define more of it.
    """
    # The engine takes its machine over, so that one serves a single engine.
    module = _prepared(text, _machine(target, jit=True), libraries)
    engine = llvm.create_mcjit_compiler(module, _machine(target, jit=True))
    engine.finalize_object()
    return LoadedModule(engine)


def compile_object(
    text: str, target: CpuTarget, libraries: Sequence[str] = (), hidden: Sequence[str] = ()
) -> bytes:
    """Compile a module in LLVM's assembly to an object file.

    Parameters
    ----------
    libraries
        Modules that define more of it.
    hidden
        Functions that other object files cannot call.
    """
    machine = _machine(target, jit=False)
    module = _prepared(text, machine, libraries)
    for name in hidden:
        module.get_function(name).linkage = "internal"
    result: bytes = machine.emit_object(module)
    return result
