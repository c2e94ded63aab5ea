"""The report is one well-formed page that needs nothing else and trusts no name."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.compiler.compiled import AcceleratorStep, Target
from tilewright.isa.memories import Engine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.result import RunResult

VOID = {"meta", "br", "link", "img", "input"}
NASTY = '</script><img src=x onerror="alert(1)">&\''


class Page(HTMLParser):
    """Collects elements and texts, and checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def result(compiled_digits: CompiledModel) -> RunResult:
    return compiled_digits.run(np.zeros((1, 1, 16, 16), np.float32))


def page_of(result: RunResult, folder: Path) -> tuple[str, Page]:
    path = folder / "report.html"
    result.save_report(path)
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def data_of(page: Page) -> dict[str, list[list[float]]]:
    return json.loads(page.texts["script"][0])


def test_it_needs_nothing_else(result: RunResult, tmp_path: Path) -> None:
    text, page = page_of(result, tmp_path)
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\$\{", text)
    for _, attributes in page.elements:
        assert not {"src", "href", "srcset", "data"} & attributes.keys()


def test_its_tables_hold_the_run(result: RunResult, tmp_path: Path) -> None:
    _, page = page_of(result, tmp_path)
    cells = page.texts["td"]
    for layer in result.stats.layers:
        assert layer.name in cells
    for item in result.compiled.placement:
        assert item.reason in cells
    assert f"{result.stats.cycles:,}" in page.texts["b"]
    assert f"{result.stats.milliseconds:,.3f} ms" in page.texts["b"]
    assert "dram.read_latency_cycles" in cells


def test_layers_have_the_colour_of_the_time_line_and_a_bound_where_there_is_one(
    result: RunResult, tmp_path: Path
) -> None:
    text, page = page_of(result, tmp_path)
    swatches = [a["data-layer"] for tag, a in page.elements if a.get("class") == "swatch"]
    layers = [layer for layer in result.stats.layers if layer.device is Target.ACCELERATOR]
    assert swatches == [str(number) for number in range(len(layers))]
    for number, layer in enumerate(layers):
        row = text.split(f'data-layer="{number}"></i>')[1].split("</tr>")[0]
        numbers = re.findall(r'<td class="number">([^<]*)</td>', row)
        products = [f"{n:,}" if n else "-" for n in (layer.ideal_cycles, layer.macs)]
        assert numbers[:3] == [f"{layer.cycles:,}", *products]
    assert {layer.ideal_cycles > 0 for layer in layers} == {True, False}


def test_a_program_has_no_share_of_the_multipliers(result: RunResult, tmp_path: Path) -> None:
    steps = tuple(
        replace(
            step,
            layers=tuple(replace(layer, macs=0, ideal_cycles=0) for layer in step.layers),
        )
        for step in result.compiled.steps
        if isinstance(step, AcceleratorStep)
    )
    unknown = replace(result, compiled=replace(result.compiled, steps=steps))
    for run, shown in ((result, True), (unknown, False)):
        _, page = page_of(run, tmp_path)
        texts = " ".join(page.texts["div"])
        assert ("of the multipliers" in texts, "of the array-shape bound" in texts) == (
            shown,
            shown,
        )


def test_its_time_line_holds_every_busy_cycle(result: RunResult, tmp_path: Path) -> None:
    _, page = page_of(result, tmp_path)
    data = data_of(page)
    segments = data["segments"]
    assert data["cycles"] == result.stats.cycles
    layers = [layer for layer in result.stats.layers if layer.device is Target.ACCELERATOR]
    assert data["layers"] == [layer.name for layer in layers]
    for engine in Engine:
        mine = sorted((s for s in segments if s[0] == engine), key=lambda s: s[2])
        busy = sum((last - first + 1) * share for _, _, first, last, share in mine)
        assert busy == pytest.approx(result.stats.engines[engine].busy, rel=0.01)
        assert all(a[3] < b[2] for a, b in pairwise(mine))
    bars = [item for item in segments if item[0] == -1]
    assert sum(last - first + 1 for _, _, first, last, _ in bars) == result.stats.cycles
    for number, layer in enumerate(layers):
        own = [last - first + 1 for _, owner, first, last, _ in bars if owner == number]
        assert sum(own) == layer.cycles


def test_names_are_escaped(result: RunResult, tmp_path: Path) -> None:
    compiled = result.compiled
    placement = tuple(replace(item, node=NASTY) for item in compiled.placement)
    graph = replace(compiled.graph, name=NASTY)
    steps = []
    for step in compiled.steps:
        if hasattr(step, "layers"):
            layers = tuple(replace(layer, name=NASTY) for layer in step.layers)
            steps.append(replace(step, layers=layers))
        else:
            steps.append(step)
    changed = replace(compiled, graph=graph, placement=placement, steps=tuple(steps))
    text, page = page_of(replace(result, compiled=changed), tmp_path)
    assert NASTY not in text
    assert not any(tag == "img" for tag, _ in page.elements)
    assert page.texts["td"].count(NASTY) == len(placement) + 9
    assert set(data_of(page)["layers"]) == {NASTY}


def test_the_reference_has_no_report(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    result = compiled_digits.run(image, "reference")
    with pytest.raises(Exception, match=r"^device 'reference' counts no cycles$"):
        result.save_report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
