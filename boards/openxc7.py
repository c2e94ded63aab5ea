"""The openXC7 flow: an XC7Z020 without the vendor's tools, for small configurations.

Which commands made complete files, with which versions, is in `docs/boards.md`; none of those files
has been on a board. Multipliers are made of look-up tables: an open fault of nextpnr-xilinx
(openXC7/nextpnr-xilinx, pull request 159) makes inferred DSP blocks ignore an operand.
"""

from string import Template

from tilewright.boards.board import Board
from tilewright.boards.zynq import TOP_NAME
from tilewright.isa.config import AcceleratorConfig

SCRIPT_NAME = "build.sh"
#: Programs that the script calls.
TOOLS = ("yosys", "nextpnr-xilinx", "fasm2frames", "xc7frames2bit")
#: Products per cycle that were placed and routed; twice as many in each direction were not.
LARGEST_ARRAY = 64
#: Deepest bank of a scratchpad: yosys would chain block RAMs for more, which prjxray does not know.
DEEPEST_BANK = 1 << 15

_SCRIPT = Template("""\
#!/bin/sh
# Builds the bitstream of `$config` for $board with openXC7; run it with
#   PRJXRAY_DB=... [CHIPDB=...] sh $script
# PRJXRAY_DB is the folder of prjxray-db; CHIPDB is the chip database $device.bin, which only the
# nextpnr-xilinx of 2024 asks for. Leaves $stem.bit, and what made it in versions.txt.
set -eu
cd "$$(dirname "$$0")"
: "$${PRJXRAY_DB:?is the folder of prjxray-db}"

{
    yosys -V
    nextpnr-xilinx --version || :
} > versions.txt 2>&1

yosys -q -p "read_verilog -sv $stem.v; \\
    synth_xilinx -flatten -abc9 -arch xc7 -top $top -nosrl -nolutram -nodsp; \\
    delete t:\\$$scopeinfo; stat; write_json $stem.json"

# Since 2026 nextpnr-xilinx is a part of nextpnr-himbaechel, with other options.
if nextpnr-xilinx --help 2>&1 | grep -q -e --device; then
    nextpnr-xilinx --device $part -o xdc=$stem.xdc --json $stem.json -o fasm=$stem.fasm \\
        --router router2 --freq $mhz
else
    : "$${CHIPDB:?is the chip database $device.bin}"
    nextpnr-xilinx --chipdb "$$CHIPDB" --xdc $stem.xdc --json $stem.json --fasm $stem.fasm \\
        --freq $mhz
fi

fasm2frames --part $part --db-root "$$PRJXRAY_DB/zynq7" $stem.fasm > $stem.frames
xc7frames2bit --part_file "$$PRJXRAY_DB/zynq7/$part/part.yaml" --part_name $part \\
    --frm_file $stem.frames --output_file $stem.bit
""")


def script(config: AcceleratorConfig, board: Board, stem: str) -> str:
    """Write the shell script of a Zynq-7000 board."""
    return _SCRIPT.substitute(
        config=config.name,
        board=board.title,
        script=SCRIPT_NAME,
        stem=stem,
        part=board.part.name,
        device=board.part.name.partition("clg")[0],
        top=TOP_NAME,
        mhz=f"{config.clock_mhz:g}",
    )
