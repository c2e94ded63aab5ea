"""Plants one fault after the other into the hardware and says which test catches it.

Run as ``python benchmarks/mutations.py [NAME ...]``; exit status 1 if a fault goes unnoticed. The
checkout stays as it is: each fault lives in a copy of `hw/` that the tests import instead.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: Folders below `tilewright`; the files of `api/` are `tilewright` itself.
FOLDERS = ("boards", "compiler", "cpu_gpu_backends", "isa", "runtime", "sim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line of `hw/` made wrong."""

    name: str
    file: str
    right: str
    wrong: str
    #: Tests that have to notice.
    tests: str = "tests/hw"


#: A fault may make a unit wait for ever.
_LIMIT_SECONDS = 300
EXACTNESS = "tests/sim/test_rtl.py::test_random_programs"

FAULTS = (
    Fault(
        name="fetch: a burst asked for when the buffer lacks one entry of room",
        file="fetch.py",
        right="(room >= burst)",
        wrong="(room >= burst - 1)",
        tests=EXACTNESS,
    ),
    Fault(
        name="tokens: one given in the cycle in which one is taken is dropped",
        file="tokens.py",
        right="+ given -",
        wrong="+ (given & ~taken) -",
        tests="tests/hw/test_tokens.py",
    ),
    Fault(
        name="queue: a full queue takes another entry",
        file="queue.py",
        right="self.write.ready.eq(self.level != self._depth)",
        wrong="self.write.ready.eq(1)",
        tests="tests/hw/test_queue.py",
    ),
    Fault(
        name="load: finishes one cycle early",
        file="load_writer.py",
        right="self.finish.eq(stepped.valid & stepped.finishes)",
        wrong="self.finish.eq(self.task_done)",
        tests=EXACTNESS,
    ),
    Fault(
        name="load: bottom padding left out",
        file="load.py",
        right="task.height.eq(bottom + current.pad_bottom)",
        wrong="task.height.eq(bottom)",
        tests="tests/hw/test_load.py",
    ),
    Fault(
        name="load and store: a row is cut one beat too late",
        file="row_bursts.py",
        right="ends_at = Mux(last_block == 0, last_beat, full)",
        wrong="ends_at = Mux(last_block == 0, last_beat + 1, full)",
        tests="tests/hw/test_row_bursts.py",
    ),
    Fault(
        name="sequencer: a loop that advances does not restart those inside it",
        file="sequencer.py",
        right="with m.Elif(outer):",
        wrong="with m.Elif(advance[level]):",
        tests="tests/hw/test_sequencer.py",
    ),
    Fault(
        name="gemm: packed products without the sign of the lower one",
        file="array.py",
        right=".as_signed() + first[_PACKING_SHIFT - 1]",
        wrong=".as_signed()",
        tests="tests/hw/test_array.py",
    ),
    Fault(
        name="gemm: an accumulator that is still in the pipeline is not forwarded",
        file="gemm.py",
        right="misses_last.eq(added.valid & (added.dst == summed.dst))",
        wrong="misses_last.eq(0)",
        tests="tests/hw/test_gemm.py",
    ),
    Fault(
        name="vector: no saturation",
        file="requantise.py",
        right="fits = (top == 0) | top.all()",
        wrong="fits = top.any() | 1",
        tests="tests/hw/test_requantise.py",
    ),
    Fault(
        name="vector: ties rounded up instead of to even",
        file="requantise.py",
        right="half & (sticky | whole[0])",
        wrong="half",
        tests="tests/hw/test_requantise.py",
    ),
    Fault(
        name="vector: a lane rests while a result is in it",
        file="vector.py",
        right="valid = Cat(_ends(at[_COMBINED_STAGE + stage])",
        wrong="valid = Cat(_ends(at[_COMBINED_STAGE + max(stage - 1, 0)])",
        tests="tests/hw/test_vector.py",
    ),
    Fault(
        name="vector: does not wait for results in `acc`",
        file="vector.py",
        right="m.d.sync += pending.eq(1)",
        wrong="m.d.sync += pending.eq(0)",
        tests="tests/hw/test_vector.py",
    ),
    Fault(
        name="store: bursts one cycle too close",
        file="store.py",
        right="pause.eq(self._config.dram.write_gap_cycles)",
        wrong="pause.eq(self._config.dram.write_gap_cycles - 1)",
        tests="tests/hw/test_store.py",
    ),
    Fault(
        name="store: strobes of the beat before are left over",
        file="store.py",
        right="m.d.sync += held_strobe.eq(0)",
        wrong="m.d.sync += held_strobe.eq(held_strobe)",
        tests="tests/hw/test_store.py",
    ),
    Fault(
        name="control: the watchdog counts while there is progress",
        file="control.py",
        right="with m.If(self.progress | ~self.running):",
        wrong="with m.If(~self.running):",
        tests="tests/hw/test_accelerator.py",
    ),
)


def plant(fault: Fault, folder: Path) -> None:
    """Make a package `tilewright` in `folder` whose hardware has the fault."""
    package = folder / "tilewright"
    package.mkdir()
    for path in (REPOSITORY / "api").iterdir():
        (package / path.name).symlink_to(path)
    for name in FOLDERS:
        (package / name).symlink_to(REPOSITORY / name)
    shutil.copytree(REPOSITORY / "hw", package / "hw")
    file = package / "hw" / fault.file
    text = file.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        sys.exit(f"{fault.file} must hold {fault.right!r} once; renew the fault {fault.name!r}")
    file.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")


def caught_by(fault: Fault) -> str | None:
    """Return the test that fails with the fault; nothing where all pass or one does not end."""
    with tempfile.TemporaryDirectory() as name:
        plant(fault, Path(name))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            fault.tests,
        ]
        try:
            done = subprocess.run(
                command,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": name},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if done.returncode and found else None


def main() -> int:
    """Plant the faults and print what caught them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only faults whose name holds one of these")
    names = parser.parse_args().names
    faults = [item for item in FAULTS if not names or any(name in item.name for name in names)]
    missed = 0
    for fault in faults:
        test = caught_by(fault)
        missed += test is None
        print(f"{fault.name}: {'NOT CAUGHT' if test is None else 'caught by ' + test}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
