"""The Vivado flow: constraints and a batch script that stops where the timing is not met."""

from string import Template

from tilewright.boards.board import Board
from tilewright.boards.parts import Family
from tilewright.boards.zynq import BLOCKS, PROCESSOR_NAME, TOP_NAME
from tilewright.isa.config import AcceleratorConfig

#: Name of every file of a bitstream, without its suffix.
STEM = "tilewright"
SCRIPT_NAME = "build.tcl"

_CONSTRAINTS = Template("""\
# Clock of the programmable logic: $mhz MHz, set by the driver before the accelerator starts.
create_clock -name pl_clock -period $period [get_pins {$processor/$clock[0]}]
""")

#: Only for a processor that has a reset output.
_RESET_CONSTRAINT = Template("""\
# Asynchronous; a synchroniser takes it into the clock domain.
set_false_path -through [get_pins {$processor/$reset[0]}]
""")

_SCRIPT = Template("""\
# Builds the bitstream of `$config` for $board; run it with
#   vivado -mode batch -source $script
# Leaves $stem.bit, $stem.bin, utilization.json and timing.json. Exits with status 1, and without a
# bitstream, where the timing is not met.

proc write_json {path values} {
    set lines {}
    foreach {name value} $$values {
        lappend lines "  \\"$$name\\": $$value"
    }
    set file [open $$path w]
    puts $$file "{\\n[join $$lines ",\\n"]\\n}"
    close $$file
}

proc count_cells {pattern} {
    return [llength [get_cells -quiet -hierarchical -filter "REF_NAME =~ $$pattern"]]
}

proc worst_slack {kind} {
    set path [get_timing_paths -quiet -max_paths 1 $$kind]
    if {[llength $$path] == 0} {
        error "there is no timing path: the clock has no constraint"
    }
    return [get_property SLACK $$path]
}

cd [file dirname [file normalize [info script]]]
create_project -in_memory -part $part
read_verilog $stem.v
read_xdc $stem.xdc

synth_design -top $top -part $part
opt_design
place_design -directive Explore
phys_opt_design
route_design -directive Explore
phys_opt_design

report_utilization -hierarchical -file utilization.rpt
report_timing_summary -max_paths 10 -file timing.rpt
write_checkpoint -force $stem.dcp
write_json utilization.json [list \\
    lut [count_cells LUT*] \\
    register [count_cells FD*] \\
    dsp [count_cells DSP48E*] \\
    block_ram_36 [count_cells RAMB36E*] \\
    block_ram_18 [count_cells RAMB18E*] \\
    lut_available $luts \\
    register_available $registers \\
    dsp_available $multipliers \\
    block_ram_36_available $block_rams \\
]

set setup [worst_slack -setup]
set hold [worst_slack -hold]
write_json timing.json [list \\
    period_ns $period \\
    setup_slack_ns $$setup \\
    hold_slack_ns $$hold \\
    reached_mhz [format %.3f [expr {1000.0 / ($period - $$setup)}]] \\
]
if {$$setup < 0 || $$hold < 0} {
    puts stderr "timing is not met at $mhz MHz: setup slack $$setup ns, hold slack $$hold ns"
    exit 1
}

write_bitstream -force $stem.bit
write_cfgmem -force -format BIN -interface SMAPx32 -disablebitswap \\
    -loadbit "up 0x0 $stem.bit" $stem.bin
""")


def constraints(config: AcceleratorConfig, board: Board) -> str:
    """Write the XDC file of a board with a processor."""
    block = BLOCKS[board.part.family]
    values = {
        "mhz": f"{config.clock_mhz:g}",
        "period": _period_ns(config),
        "processor": PROCESSOR_NAME,
        "clock": block.clock,
        "reset": block.reset,
    }
    text = _CONSTRAINTS.substitute(values)
    return text + _RESET_CONSTRAINT.substitute(values) if block.reset else text


def script(config: AcceleratorConfig, board: Board) -> str:
    """Write the Tcl script of a board with a processor."""
    assert board.part.family is not Family.ECP5, "Vivado builds for AMD's parts"
    part = board.part
    return _SCRIPT.substitute(
        config=config.name,
        board=board.title,
        script=SCRIPT_NAME,
        stem=STEM,
        part=part.name,
        top=TOP_NAME,
        period=_period_ns(config),
        mhz=f"{config.clock_mhz:g}",
        luts=part.luts,
        registers=part.registers,
        multipliers=part.multipliers,
        block_rams=part.block_rams,
    )


def _period_ns(config: AcceleratorConfig) -> str:
    """Round the period down, so that the clock is never faster than what was asked of the tool."""
    return f"{int(1e6 / config.clock_mhz) / 1e3:.3f}"
