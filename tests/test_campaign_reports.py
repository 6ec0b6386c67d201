"""Report files: every figure of the HTML page and of the JUnit XML is that of ``--json``."""

import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import DUMPS, Inside

from pto_gpu import backends
from pto_gpu.campaign import run
from pto_gpu.campaign.reports.picture import WINDOW, pictures
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.isa import instructions

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """What a page says: figures by (key, entry), words, and everything that would be fetched."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: dict[tuple[str, str], float] = {}
        self.titles: list[str] = []
        self.chips: Counter[str] = Counter()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.words = ""
        self._open: list[tuple[str, dict[str, Any]]] = []
        self.feed(text)
        self.close()
        assert not self._open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.fetched += [v for k, v in attributes.items() if k in ("src", "href") and not v.startswith("#")]
        if "chip" in attributes.get("class", ""):
            self.chips[attributes["class"].removeprefix("chip").strip()] += 1
        if tag not in self.VOID:
            self._open.append((tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if "data-figure" in attributes:
            key = (attributes["data-figure"], attributes.get("data-entry", ""))
            assert key not in self.figures
            self.figures[key] = float(data.replace("\N{NARROW NO-BREAK SPACE}", ""))
        if tag == "title":
            self.titles.append(data)
        if tag != "style":
            self.words += data


def figures_of(data: Any) -> dict[tuple[str, str], float]:
    """The figures that a page has to show, from the object of ``validate --json``."""
    figures: dict[tuple[str, str], float] = {("seconds", ""): data["seconds"]}
    figures["entries", ""] = len(data["campaigns"])
    for key in ("tiles", "mismatched_elements", "mismatched_tiles"):
        figures[key, ""] = sum(c[key] for c in data["campaigns"])
    for c in data["campaigns"]:
        name = f"{c['instruction']} {'/'.join(c['types'])} {c['shape'][0]}x{c['shape'][1]}"
        for key in ("tiles", "mismatched_elements", "mismatched_tiles", "seconds", "tiles_per_second"):
            figures[key, name] = c[key]
        for kind, n in c["valid_regions"].items():
            title = "Valid region of the other source" if kind.startswith("other ") else "Valid regions"
            key = (f"{title}: {kind}", "")
            figures[key] = figures.get(key, 0) + n
        for kind, n in c["operand_profiles"].items():
            title = "Rows of reductions" if kind.endswith(" rows") else "Value operands"
            key = (f"{title}: {kind.removesuffix(' rows')}", "")
            figures[key] = figures.get(key, 0) + n
    return figures


def wrong_here_and_there(options):
    def execute(call):
        backends.load("numpy").run(call)
        if call.instruction.name == "TROWMIN":
            raise RuntimeError("device <b>lost</b> \x00 & gone")
        if call.instruction.name != "TPRELU" and call.batch > 30:
            for operand in call.instruction.dsts:
                call.tiles[operand.name].data[30, 1, 2:5] = 77

    return execute


@pytest.fixture
def mixed(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str, bytes]:
    """A run with equal, differing and failing campaigns: JSON, HTML, XML."""
    monkeypatch.setattr(run, "backend_execute", wrong_here_and_there)
    status, out, _ = inside(
        "validate", "--dtype", "f16", "--tiles", 1500, "--json", "--html", "r.html", "--junit", "r.xml"
    )
    assert status == 1
    return json.loads(out), Path("r.html").read_text(), Path("r.xml").read_bytes()


def test_the_page_shows_the_figures_of_the_json(mixed: tuple[Any, str, bytes]) -> None:
    data, text, _ = mixed
    page = Page(text)
    assert page.figures == figures_of(data)
    assert page.fetched == []
    assert page.tags["script"] == page.tags["link"] == page.tags["iframe"] == 0
    assert not re.search(r"url\((?!#)|@import|https?:", text)
    assert len(page.ids) == len(set(page.ids))
    targets = re.findall(r'href="#([^"]*)"', text)
    assert targets
    assert set(targets) <= set(page.ids)


def test_the_page_shows_each_failure(mixed: tuple[Any, str, bytes]) -> None:
    data, text, _ = mixed
    page = Page(text)
    wrong = [c for c in data["campaigns"] if c["mismatched_elements"]]
    assert {c["instruction"] for c in wrong} == {"TPARTMIN", "TPARTARGMIN"}
    dsts = [len(instructions()[c["instruction"]].dsts) for c in wrong]
    assert sum(dsts) <= page.tags["svg"] <= 2 * sum(dsts)  # as it was found, and shrunk
    for c in wrong:
        for m in c["mismatches"]:
            assert f"{m['operand']}({m['row']}, {m['col']})" in page.words
            assert m["seen"] in page.words
            assert m["expected"] in page.words
            if m["tile"] == c["mismatches"][0]["tile"]:
                at = f"{m['operand']}({m['row']}, {m['col']})"
                assert f"{at}: seen {m['seen']}, expected {m['expected']}" in page.titles
        assert all(cause in page.words for cause in c["causes"])
    failed = [c for c in data["campaigns"] if c["crash"]]
    assert {c["instruction"] for c in failed} == {"TROWMIN"}
    for c in (*wrong, *failed):
        assert f"pto-gpu replay {c['saved']}" in page.words
    assert "RuntimeError: device <b>lost</b>" in page.words
    assert page.tags["b"] == len(re.findall(r'<b class="key-', text)), "only keys of the legend are bold"
    in_matrix = text[text.index('class="matrix"') : text.index("</table>")]
    combinations = [(r, s) for r in instructions().values() for s in r.element_types["a5"] if s[0] == "f16"]
    chips = Counter(re.findall(r'class="chip ([a-z]+)"', in_matrix))
    rows = sum(r.name == "TROWMIN" for r, _ in combinations)
    assert chips == {"equal": len(combinations) - len(wrong) - rows, "mismatch": len(wrong), "failed": rows}


def test_a_page_says_what_was_not_run(inside: Inside) -> None:
    inside(
        "validate", "TPARTMIN", "TPARTARGMIN", "--dtype", "f16", "--tiles", 8, "--target", "a2a3", "--html", "r.html"
    )
    page = Page(Path("r.html").read_text())
    allowed = [s for op in ("TPARTMIN", "TPARTARGMIN") for s in instructions()[op].element_types["a2a3"]]
    assert page.words.count("not run") == sum(s[0] != "f16" for s in allowed)
    assert "3 combinations: all equal to the reference, bit for bit" in page.words
    assert page.tags["svg"] == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_shows_the_figures_of_the_json(mixed: tuple[Any, str, bytes], tmp_path: Path) -> None:
    data, _, _ = mixed
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "r.html").as_uri()]
    done = subprocess.run([str(CHROMIUM), *options], capture_output=True, text=True, check=True, timeout=120)
    page = Page(done.stdout)
    assert page.figures == figures_of(data)
    assert page.tags["svg"] > 0


def test_junit_has_a_suite_for_each_instruction_and_a_case_for_each_combination(mixed: tuple[Any, str, bytes]) -> None:
    data, _, xml = mixed
    root = ElementTree.fromstring(xml)
    assert [suite.get("name") for suite in root] == list(instructions())
    for suite in root:
        campaigns = [c for c in data["campaigns"] if c["instruction"] == suite.get("name")]
        cases = suite.findall("testcase")
        kinds = [case.find("failure") is not None for case in cases]
        errors = [case.find("error") is not None for case in cases]
        assert kinds == [bool(c["mismatched_elements"]) for c in campaigns]
        assert errors == [c["crash"] is not None for c in campaigns]
        assert [suite.get(k) for k in ("tests", "failures", "errors", "skipped")] == [
            str(n) for n in (len(campaigns), sum(kinds), sum(errors), 0)
        ]
        for case, campaign in zip(cases, campaigns, strict=True):
            assert case.get("name", "").split()[0] == "/".join(campaign["types"])
            assert float(case.get("time", "")) == campaign["seconds"]
            properties = {p.get("name"): p.get("value") for p in case.findall("properties/property")}
            assert properties["tiles"] == str(campaign["tiles"])
            assert properties["seed"] == str(campaign["seed"])
            text = case.findtext("failure", "")
            assert len(re.findall(r"^    dst", text, re.MULTILINE)) == min(4, len(campaign["mismatches"]))
            for m in campaign["mismatches"][:1]:
                assert f"\n  tile {m['tile']}, valid regions: " in text
                assert f"\n    {m['operand']}({m['row']}, {m['col']}) [{m['category']}]: " in text
                assert f"seen {m['seen']}, expected {m['expected']}" in text
            if campaign["crash"]:
                assert "RuntimeError: device <b>lost</b> \\x00 & gone" in case.find("error").get("message")
    assert root.get("tests") == str(len(data["campaigns"]))


def test_reports_are_written_when_a_run_is_interrupted(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options):
        def execute(call):
            backends.load("numpy").run(call)
            if call.instruction.name == "TPARTMIN":
                raise KeyboardInterrupt

        return execute

    monkeypatch.setattr(run, "backend_execute", interrupted)
    status, out, _ = inside(
        "validate", "--dtype", "f16", "--tiles", 1500, "--json", "--html", "r.html", "--junit", "r.xml"
    )
    assert status == 130
    done = [c["instruction"] for c in json.loads(out)["campaigns"]]
    assert done == ["TPARTARGMIN", "TPARTARGMIN", "TPARTMIN"]
    page = Page(Path("r.html").read_text())
    assert "Interrupted after 2 of 5 combinations: no difference so far" in page.words
    assert (page.chips["interrupted"], page.chips["not-started"], page.chips["equal"]) == (3, 4, 4)
    assert page.figures["tiles", ""] == 3000
    root = ElementTree.fromstring(Path("r.xml").read_bytes())
    assert [root.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["5", "0", "1", "2"]


@pytest.mark.parametrize("option", ["--html", "--junit"])
@pytest.mark.parametrize("command", ["validate", "check"])
def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, command: str
) -> None:
    monkeypatch.setattr(run, "backend_execute", lambda options: pytest.fail("it ran"))
    arguments = [DUMPS / "tpartmin_f32.npz"] if command == "check" else ["TPARTMIN", "--journal", "run.db"]
    for path in ("absent/report", str(tmp_path)):
        status, out, err = inside(command, *arguments, option, path)
        assert (status, out) == (2, "")
        assert re.fullmatch(rf"error: {path}: cannot be written: [^\n]*\n", err)
        assert list(tmp_path.iterdir()) == []
    status, _, err = inside(command, *arguments, "--html", "same", "--junit", "same")
    assert (status, err) == (2, "error: --junit and --html name the same file: same\n")


@pytest.mark.parametrize("option", ["--html", "--junit"])
def test_a_report_does_not_replace_a_file_that_the_command_needs(inside: Inside, tmp_path: Path, option: str) -> None:
    validate = ("validate", "TPARTMIN", "--dtype", "i32", "--tiles", 20, "--journal", "run.db")
    assert inside(*validate)[0] == 0
    dump = Path("tpartmin_f32.npz")
    dump.write_bytes((DUMPS / dump).read_bytes())
    Path("link").symlink_to(dump)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for command, name, report in (
        ((*validate, "--resume"), "--journal", "./run.db"),
        (("check", dump), "FILE", "link"),
    ):
        status, out, err = inside(*command, option, report)
        assert (status, out) == (2, "")
        assert err == f"error: {name} and {option} name the same file: {Path(report)}\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_check_writes_reports_of_files(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "trowmin_i16.npz") as archive:
        arrays = dict(archive)
    arrays["dst"][3, 0, 0] -= 1
    odd = "trowmin_<script>alert(1)<&>.npz"
    np.savez(tmp_path / odd, **arrays)
    (tmp_path / "tprelu_bad.npz").write_text("hello")
    files = [odd, DUMPS / "tpartmin_f32.npz", "tprelu_bad.npz"]
    status, out, _ = inside(
        "check", *files, "--numerics", "simulator", "--json", "--html", "r.html", "--junit", "r.xml"
    )
    data = json.loads(out)
    assert status == 2
    page = Page(Path("r.html").read_text())
    assert page.tags["script"] == 0
    assert odd in page.words
    assert page.figures["tiles", ""] == sum(f.get("tiles", 0) for f in data["files"])
    assert page.figures["mismatched_elements", f"TROWMIN {odd}"] == 1
    mismatch = data["files"][0]["mismatches"][0]
    assert f"dst(0, 0): seen {mismatch['seen']}, expected {mismatch['expected']}" in page.titles
    assert "tprelu_bad.npz: not an .npz file" in page.words
    root = ElementTree.fromstring(Path("r.xml").read_bytes())
    assert [root.get(k) for k in ("tests", "failures", "errors")] == ["3", "1", "1"]
    assert [case.get("name") for case in root.iter("testcase")] == [odd, str(files[1]), "tprelu_bad.npz"]


def test_a_page_says_what_an_exhaustive_run_compared(inside: Inside) -> None:
    status, out, _ = inside("validate", "TPARTMIN", "--dtype", "i8", "--exhaustive", "--json", "--html", "r.html")
    (campaign,) = json.loads(out)["campaigns"]
    page = Page(Path("r.html").read_text())
    assert (status, campaign["exhaustive"]["total"]) == (0, 1 << 16)
    words = page.words.replace("\N{NARROW NO-BREAK SPACE}", "")
    assert f"{campaign['exhaustive']['of']}: 65536 of 65536 pairs" in words
    assert page.figures["tiles", "TPARTMIN i8 exhaustive"] == campaign["tiles"]
    assert "seed" not in words


def test_what_a_tolerance_accepts_is_not_called_wrong(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "tpartmin_f32.npz") as archive:
        arrays = dict(archive)
    rows, cols = arrays["dst_valid"][3] = arrays["src0_valid"][3] = arrays["src1_valid"][3] = (3, 4)
    arrays["src0"][3], arrays["src1"][3], arrays["dst"][3] = 1, 2, 0
    dst = arrays["dst"][3].view(np.uint32)
    dst[:rows, :cols] = 0x3F800000
    dst[0, 0] += 1
    dst[1, 1] += 100
    np.savez(tmp_path / "tpartmin_mine.npz", **arrays)
    arguments = ["check", "tpartmin_mine.npz", "--numerics", "simulator", "--ulp"]
    status, _, _ = inside(*arguments, 2, "--html", "r.html")
    page = Page(Path("r.html").read_text())
    assert status == 1
    (title,) = [t for t in page.titles if "seen" in t]
    assert title == "dst(1, 1): seen 0x3f800064 (1.000011920928955), expected 0x3f800000 (1.0)"
    status, _, _ = inside(*arguments, 100, "--html", "r.html")
    assert status == 0
    words = Page(Path("r.html").read_text()).words
    assert "1 file: equal to the reference, within the tolerance" in words
    assert "2 elements within the tolerance, not bit for bit" in words


def test_a_picture_of_a_large_tile_shows_where_it_is_wrong() -> None:
    def execute(call):
        backends.load("numpy").run(call)
        call.tiles["dst"].data[4, 0, [3, 1900, 1901, 2040]] = 77

    campaign = Campaign("TPARTMIN", ("i32",), shape=(1, 2048), tiles=8)
    failure = run_campaign(campaign, execute).first_failure
    (picture,) = pictures(failure)
    assert (picture.tile, picture.rows, picture.cols, picture.col) == (4, 1, WINDOW, 0)
    assert (picture.all_rows, picture.all_cols, picture.elsewhere) == (1, 2048, 3)
    assert [(w.row, w.col, w.seen) for w in picture.wrong] == [(0, 3, "0x0000004d (77)")]
    failure.seen["dst"][0, 3] = failure.expected["dst"][0, 3]
    (picture,) = pictures(failure)
    assert picture.col <= 1900 < picture.col + picture.cols
    assert [w.col for w in picture.wrong] == [1900, 1901]
    regions = {name: (o.rows, o.cols) for o in picture.outlines for name in o.names}
    assert regions == failure.valid
