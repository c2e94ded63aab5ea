"""Projects: their files, what they refuse, and what becomes of the tool's exit status."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tilewright.boards.board import Board
from tilewright.boards.catalogue import PYNQ_Z1, PYNQ_Z2, ULTRA96_V2, ULX3S
from tilewright.boards.ecp5_clock import find_pll
from tilewright.boards.project import BuildError, Project, make_project
from tilewright.boards.toolchains import Toolchain, choose_toolchain
from tilewright.isa.config_record import config_digest, config_from_record
from tilewright.isa.errors import ConfigError, InputError
from tilewright.isa.presets import TINY

CONFIG = TINY.replace(name="small", clock_mhz=50.0)


@pytest.fixture(scope="module")
def project() -> Project:
    return make_project(PYNQ_Z2, CONFIG, Toolchain.VIVADO)


@pytest.fixture(scope="module")
def open_project() -> Project:
    return make_project(PYNQ_Z1, CONFIG, Toolchain.OPENXC7)


def fake_tool(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of that name first on the path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")


def test_record_says_what_the_bitstream_is(project: Project) -> None:
    record = json.loads(project.files["config.json"])
    assert config_from_record(record["config"]) == CONFIG
    assert record["digest"] == config_digest(CONFIG)
    assert record["control_address"] == 0x43C0_0000
    pll = {"IO_PLL": 1000, "ARM_PLL": 1300, "DDR_PLL": 1050}[record["clock"]["pll"]]
    first, second = record["clock"]["divisors"]
    assert pll / first / second == record["clock"]["mhz"] == 50.0


def test_design_holds_one_processor_and_no_port(project: Project) -> None:
    text = project.files["tilewright.v"]
    assert len(re.findall(r"^\s*PS7 processor \(", text, re.MULTILINE)) == 1
    assert re.search(r"^module tilewright_top\(\);", text, re.MULTILINE)
    assert ".FCLKCLK(" in text
    assert ".FCLKRESETN(" in text


def test_written_project_equals_its_files(project: Project, tmp_path: Path) -> None:
    project.write(tmp_path / "new" / "folder")
    for name, text in project.files.items():
        assert (tmp_path / "new" / "folder" / name).read_text(encoding="utf-8") == text


def test_a_folder_that_cannot_be_made_is_an_input_error(project: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^cannot write the project to .*/file: File exists$"):
        project.write(tmp_path / "file")


def test_the_tool_makes_the_bitstream(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_tool(tmp_path / "bin", "vivado", 'echo "$@"; touch tilewright.bit', monkeypatch)
    project.write(tmp_path)
    project.run(tmp_path)
    said = (tmp_path / "build.log").read_text()
    assert said == "-mode batch -nojournal -source build.tcl\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo timing is not met; exit 1", "vivado failed with status 1: timing is not met"),
        ("exit 3", "vivado failed with status 3"),
        ("echo well", "vivado failed with status 0: well"),
    ],
)
def test_a_failing_tool_is_quoted(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    fake_tool(tmp_path / "bin", "vivado", body, monkeypatch)
    project.write(tmp_path)
    (tmp_path / "tilewright.bit").write_text("of an earlier build")
    with pytest.raises(BuildError) as caught:
        project.run(tmp_path)
    assert str(caught.value) == message
    assert caught.value.hint == f"see {tmp_path / 'build.log'}"


def test_a_clock_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        make_project(PYNQ_Z2, CONFIG.replace(clock_mhz=160.0), Toolchain.VIVADO)
    message = "PYNQ-Z2 cannot make a clock of 160 MHz, the nearest below is 150.000 MHz"
    assert str(caught.value) == message
    assert caught.value.hint == "--set clock_mhz=150.000"


@pytest.mark.parametrize(
    ("board", "name", "message"),
    [
        (ULTRA96_V2, "openxc7", "toolchain 'openxc7' does not build for Ultra96-V2"),
        (ULX3S, "vivado", "toolchain 'vivado' does not build for ULX3S-85F"),
    ],
)
def test_a_toolchain_that_does_not_serve_the_board_is_refused(
    board: Board, name: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        choose_toolchain(board, name)
    assert str(caught.value) == message


def test_openxc7_refuses_what_it_cannot_route() -> None:
    with pytest.raises(ConfigError, match=r"^openXC7 has routed arrays of up to 64 products"):
        make_project(PYNQ_Z1, PYNQ_Z1.config, Toolchain.OPENXC7)


def test_openxc7_refuses_memories_that_it_cannot_chain() -> None:
    config = CONFIG.replace(inp_entries=1 << 16)
    with pytest.raises(ConfigError) as caught:
        make_project(PYNQ_Z1, config, Toolchain.OPENXC7)
    assert str(caught.value) == (
        "openXC7 makes memories of up to 32768 entries, inp of 'small' has 65536"
    )
    assert caught.value.hint == "reduce inp_entries, or --toolchain vivado"


PROBED = {
    "himbaechel": ("echo '  --device arg'", "--device xc7z020clg400-1 -o xdc=tilewright.xdc"),
    "fork of 2024": ("echo '  --chipdb arg'", "--chipdb chip.bin --xdc tilewright.xdc"),
}


@pytest.mark.parametrize("version", PROBED)
def test_openxc7_script_probes_the_version(
    open_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    help_text, expected = PROBED[version]
    open_project.write(tmp_path)
    tools = tmp_path / "bin"
    log = tmp_path / "calls"
    for tool in ("yosys", "fasm2frames"):
        fake_tool(tools, tool, f'echo "{tool} $*" >> {log}', monkeypatch)
    fake_tool(tools, "xc7frames2bit", f'echo "x $*" >> {log}; touch tilewright.bit', monkeypatch)
    body = f'if [ "$1" = --help ]; then {help_text}; else echo "nextpnr $*" >> {log}; fi'
    fake_tool(tools, "nextpnr-xilinx", body, monkeypatch)
    monkeypatch.setenv("PRJXRAY_DB", "/database")
    monkeypatch.setenv("CHIPDB", "chip.bin")
    open_project.run(tmp_path)
    calls = log.read_text().splitlines()
    assert [call for call in calls if call.endswith(("-V", "--version"))] == calls[:2]
    assert (tmp_path / "versions.txt").exists()
    calls = calls[2:]
    assert [call.split()[0] for call in calls] == ["yosys", "nextpnr", "fasm2frames", "x"]
    assert calls[1].startswith(f"nextpnr {expected}")
    assert "delete t:$scopeinfo" in calls[0]
    assert "--db-root /database/zynq7" in calls[2]


def test_openxc7_script_names_what_it_lacks(open_project: Project, tmp_path: Path) -> None:
    open_project.write(tmp_path)
    done = subprocess.run(
        ["sh", "build.sh"], cwd=tmp_path, capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode != 0
    assert "PRJXRAY_DB: is the folder of prjxray-db" in done.stderr


@pytest.mark.parametrize("mhz", [25, 40, 50, 60, 62.5, 75, 80, 100, 120, 150])
def test_the_pll_of_an_ecp5_makes_its_clock(mhz: float) -> None:
    pll = find_pll(25.0, mhz)
    assert 25.0 / pll.input_divisor * pll.feedback_divisor == pytest.approx(mhz)
    assert 400 <= mhz * pll.output_divisor <= 800
    assert 25.0 / pll.input_divisor >= 3.125


@pytest.mark.parametrize("mhz", [2.0, 51.234567])
def test_a_clock_that_no_pll_makes_is_refused(mhz: float) -> None:
    with pytest.raises(ConfigError) as caught:
        find_pll(25.0, mhz)
    assert str(caught.value) == f"a PLL cannot make {mhz:g} MHz of 25 MHz"


def test_ulx3s_project_names_its_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(ULX3S, ULX3S.config, Toolchain.TRELLIS)
    design = project.files["tilewright.il"].partition("\nmodule \\tilewright_top\n")[2]
    top = design.partition("\nend\n")[0]
    ports = set(re.findall(r"^  wire .*(?:in|out)put \d+ +\\(\w+)$", top, re.MULTILINE))
    assert len(ports) == 3
    assert set(re.findall(r'LOCATE COMP "(\w+)"', project.files["tilewright.lpf"])) == ports
    project.write(tmp_path)
    log = tmp_path / "calls"
    for tool in ("yosys", "nextpnr-ecp5"):
        fake_tool(tmp_path / "bin", tool, f'echo "{tool} $*" >> {log}', monkeypatch)
    fake_tool(tmp_path / "bin", "ecppack", f'echo "$*" >> {log}; : > "$3"', monkeypatch)
    project.run(tmp_path)
    calls = log.read_text().splitlines()
    assert calls[1].startswith("nextpnr-ecp5 --85k --package CABGA381 --speed 6")
    assert calls[2] == "--compress tilewright.config tilewright.bit"


@pytest.mark.parametrize(("reaching", "tried"), [(1, [1]), (3, [1, 2, 3]), (9, [1, 2, 3])])
def test_placements_are_tried_until_one_meets_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reaching: int, tried: list[int]
) -> None:
    project = make_project(ULX3S, ULX3S.config, Toolchain.TRELLIS)
    project.write(tmp_path)
    report = {"fmax": {"clk": {"achieved": 70.0 + reaching, "constraint": 50.0}}}
    place = f"""
while [ "$1" != --seed ]; do shift; done
echo "$2" >> seeds
echo '{json.dumps(report)}' > timing.json
[ "$2" = {reaching} ]"""
    fake_tool(tmp_path / "bin", "yosys", ":", monkeypatch)
    fake_tool(tmp_path / "bin", "ecppack", ': > "$3"', monkeypatch)
    fake_tool(tmp_path / "bin", "nextpnr-ecp5", place, monkeypatch)
    if reaching in tried:
        project.run(tmp_path)
        assert project.routed_mhz(tmp_path) == 70 + reaching
    else:
        with pytest.raises(BuildError, match=r": no placement reaches 50 MHz; the last one is in"):
            project.run(tmp_path)
    assert [int(line) for line in (tmp_path / "seeds").read_text().split()] == tried
