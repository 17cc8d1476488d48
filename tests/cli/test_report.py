"""`pricing report`: what it finds in a run, and that its page is whole, self-contained and accessible."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pricing import GIB, BindingTerm, Safety, find_law
from pricing.cli.app import pricing
from pricing.kernel.laws import LAWS
from pricing.planner.budget import Budget
from pricing.records.metrics import WaveSummary
from pricing.records.record import Event
from pricing.records.replay import Answer, what_if
from pricing.report import html, run_report
from pricing.report.blocks import lanes_of
from pricing.report.findings import Severity, findings_of
from pricing.report.html import MAX_CARDS, MAX_CHARTS, MAX_TABLE_ROWS, TERM_WORDS, page, style_sheet
from pricing.report.run_report import read_run
from pricing.report.svg import linear_axis
from pricing.report.words import gib, percent
from tests.records import recorded_run
from tests.records.recorded_run import record_run

VOID = {"meta", "line", "circle", "rect", "path"}


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(pricing, ["report", *map(str, arguments)])
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("troubled")
    record_run(folder, refused=(20, 21), out_of_memory=(30,), under=(35,))
    return folder


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    record_run(folder, law="frontier", names=("rank0", "rank1"))
    return folder


# --- what it finds ---------------------------------------------------------------------------------------------------


def test_a_troubled_run_says_what_happened_most_urgent_first(troubled: Path) -> None:
    report = read_run(troubled)
    severities = [finding.severity for finding in findings_of(report)]
    assert severities[:3] == [Severity.FAILED, Severity.FAILED, Severity.REFUSED]
    assert severities == sorted(severities, key=list(Severity).index)
    failed, under, refused = findings_of(report)[:3]
    assert failed.what == "1 wave ran out of memory after admission"
    assert "to spare" in failed.advice
    assert under.what.startswith("1 wave peaked above the price, at most by ") and "rank0 wave 35" in under.what
    assert re.search(r"raise the safety factor to \d\.\d\d or more", under.advice)
    assert refused.what == "2 waves were refused before anything ran"
    assert "misses its budget by" in refused.advice
    assert (report.ran, report.count(Event.REFUSED), report.count(Event.OUT_OF_MEMORY)) == (37, 2, 1)
    assert len(report.under) == 1 and not report.unreadable and all(item.replays for item in report.records)


def test_the_safety_factor_that_is_advised_would_have_covered_every_peak(troubled: Path) -> None:
    report = read_run(troubled)
    advised = re.search(r"to (\d\.\d\d) or more", findings_of(report)[1].advice)
    assert advised is not None
    learned = [item for item in report.records if item.record.price.binding_term != BindingTerm.COLD]
    assert learned
    for item in learned:
        answer = what_if(item.record, find_law(item.record.law), Safety.parse(advised[1]))
        assert not answer.under_bytes


def test_figures_are_short_and_never_read_as_nothing() -> None:
    assert [gib(size) for size in (0, 2_848, 105_000, 64 << 20, GIB, -3 * GIB)] == [
        "0.0 KiB",
        "2.8 KiB",
        "0.1 MiB",
        "64.0 MiB",
        "1.00 GiB",
        "-3.00 GiB",
    ]
    assert [percent(share) for share in (0.0, 0.099, 1.5, -0.25)] == ["0.0 %", "9.9 %", "150 %", "-25.0 %"]


def test_a_calm_run_says_so(calm: Path) -> None:
    report = read_run(calm)
    (finding,) = findings_of(report)
    assert finding.severity is Severity.GOOD
    assert finding.what == "all 80 waves ran, each within its price" and finding.advice == "Nothing to do."
    assert [series.label for series in report.series] == ["rank0", "rank1"]


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    result = run(tmp_path, "--html", tmp_path / "report.html")
    assert result.exit_code == 0
    assert "Nothing was recorded in this folder" in result.stdout
    assert "recorder" in result.stdout
    assert "<main>" in (tmp_path / "report.html").read_text()


def test_a_failure_on_cached_memory_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D19: the estimate was right and it still failed, because cached is not free."""
    monkeypatch.setattr(recorded_run, "ROOMY", Budget(free_bytes=GIB, reserve_bytes=GIB, reusable_cache_bytes=90 * GIB))
    record_run(tmp_path, out_of_memory=(10,), waves=11)
    advice = findings_of(read_run(tmp_path))[0].advice
    assert advice.startswith("It fitted only by counting what the allocator had cached") and "release" in advice


def test_a_failure_of_a_wave_that_nothing_was_promised_for_is_told_apart(tmp_path: Path) -> None:
    record_run(tmp_path, out_of_memory=(0,), waves=1)
    advice = findings_of(read_run(tmp_path))[0].advice
    assert advice.startswith("It ran as a cold start or a probe") and "smaller item" in advice


def test_a_failure_without_a_record_says_where_to_look(tmp_path: Path) -> None:
    record_run(tmp_path, out_of_memory=(10,), waves=11)
    for path in tmp_path.glob("*-out_of_memory.json"):
        path.unlink()
    finding = findings_of(read_run(tmp_path))[0]
    assert finding.severity is Severity.FAILED and "No record of it is left" in finding.advice
    assert "Of 1 more no record is left" in page(read_run(tmp_path))


def test_text_and_json_say_the_same(troubled: Path) -> None:
    text = run(troubled)
    assert text.exit_code == 0
    assert "37 waves ran, 2 refused, 1 out of memory" in text.stdout
    told: Any = json.loads(run(troubled, "--json").stdout)
    assert (told["ran"], told["refused"], told["out_of_memory"], told["under"]) == (37, 2, 1, 1)
    assert [finding["severity"] for finding in told["findings"]][:3] == ["failed", "failed", "refused"]
    assert told["replayed_equal"] == told["records"] > 0
    assert sum(told["binding_terms"].values()) == told["waves"] == 40


def test_what_cannot_be_read_is_listed_and_the_rest_is_shown(tmp_path: Path) -> None:
    record_run(tmp_path, refused=(20,), waves=25)
    (tmp_path / "broken.json").write_text("{")
    (waves,) = tmp_path.glob("*.waves.jsonl")
    waves.write_bytes(waves.read_bytes() + b'{"torn')
    report = read_run(tmp_path)
    assert len(report.waves) == 25 and len(report.unreadable) == 2
    assert "2 files could not be read in full" in [finding.what for finding in findings_of(report)]
    assert "broken.json" in page(report)


def test_records_without_wave_lines_are_still_a_run(tmp_path: Path) -> None:
    record_run(tmp_path, refused=(20,), waves=25)
    (waves,) = tmp_path.glob("*.waves.jsonl")
    waves.unlink()
    report = read_run(tmp_path)
    assert report.count(Event.REFUSED) == 1 and len(report.waves) == len(report.records)


def test_bad_folders_are_errors_of_one_line(tmp_path: Path) -> None:
    assert run(tmp_path / "gone").exit_code == 2
    assert run(tmp_path, "--html", tmp_path / "no" / "such" / "place.html").exit_code == 2


# --- the page --------------------------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Elements and text of a page; fails on a tag that closes another."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]


def test_the_page_is_written_whole_and_says_where(troubled: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    result = run(troubled, "--html", target)
    assert result.exit_code == 0 and f"Page: {target}" in result.stdout
    assert target.read_text() == page(read_run(troubled))


def test_the_page_needs_nothing_from_outside_and_runs_no_script(troubled: Path) -> None:
    text = page(read_run(troubled))
    outline = Outline(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "video", "audio"} & {
        name for name, _ in outline.elements
    }
    assert not re.search(r"https?:|//\w|url\(|@import|src=", text)
    assert [a for _, attributes in outline.elements for a in attributes if a.startswith("on")] == []
    assert "default-src 'none'" in text, "and the browser is told so"


def test_the_page_draws_what_happened(troubled: Path) -> None:
    report = read_run(troubled)
    outline = Outline(page(report))
    in_legend = 1
    in_both_charts = 2
    assert len(outline.all("use", href="#mark-refused")) == 2 * in_both_charts + in_legend
    assert len(outline.all("use", href="#mark-failed")) == 1 * in_both_charts + in_legend
    assert len(outline.all("use", href="#mark-under")) == 1 + in_legend
    observed = [wave for wave in report.waves if wave.observed_bytes is not None]
    assert len(outline.all("circle", class_="observed")) == len(observed) + in_legend
    priced = [wave for wave in report.waves if not wave.is_cold and wave.event is not Event.REFUSED]
    cards = 3
    assert len(outline.all("line", class_="price")) == len(priced) + in_legend + cards
    words = " ".join(outline.words)
    assert "rank0 wave 20 was refused" in words and "rank0 wave 30 ran out of memory" in words
    assert "What would have helped" in words and "Decided by" in words
    assert "67,108,864 bytes" in words and "13.7 MiB were free" in words
    assert len(outline.all("tr")) >= len(report.waves) + 1


def test_every_figure_of_every_wave_is_in_the_table(calm: Path) -> None:
    report = read_run(calm)
    words = Outline(page(report)).words
    for wave in report.waves:
        assert f"{wave.name} {wave.index}" in words
    assert words.count("ran") == len(report.waves)


def test_the_page_can_be_used_by_keyboard_and_by_ear(troubled: Path, calm: Path) -> None:
    for folder in (troubled, calm):
        outline = Outline(page(read_run(folder)))
        identifiers = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
        assert len(identifiers) == len(set(identifiers))
        assert outline.all("html", lang="en") and len(outline.all("main")) == len(outline.all("h1")) == 1
        for svg in outline.all("svg"):
            if svg.get("aria-hidden") != "true":
                assert svg["role"] == "img"
                assert set((svg["aria-labelledby"] or "").split()) <= set(identifiers), "a title and a description"
        for attributes in outline.all("div", role="region"):
            assert attributes["tabindex"] == "0" and attributes["aria-label"], "what scrolls can be scrolled by key"
        assert all("scope" in attributes for attributes in outline.all("th"))
        assert outline.all("a", class_="skip", href="#waves")


def test_headings_leave_out_no_level(troubled: Path) -> None:
    levels = [int(tag[1]) for tag, _ in Outline(page(read_run(troubled))).elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels


def test_names_from_outside_are_text_never_markup(tmp_path: Path) -> None:
    record_run(tmp_path, names=("<script>alert(1)</script>",), refused=(20,), waves=25)
    text = page(read_run(tmp_path, title="<b>run</b>"))
    assert "<script" not in text and "<b>run" not in text
    assert "&lt;script&gt;alert(1)" in text and "&lt;b&gt;run" in text


def test_a_long_run_stays_a_small_page(tmp_path: Path) -> None:
    record_run(tmp_path, law="frontier", waves=30)
    (waves,) = tmp_path.glob("*.waves.jsonl")
    line = waves.read_text().splitlines()[-1]
    numbered = [line.replace('"index":29', f'"index":{number}') for number in range(6_000)]
    refused = numbered[3].replace('"event":"observed"', '"event":"refused"')
    waves.write_text("\n".join([*numbered[:3], refused, *numbered[4:]]) + "\n")
    text = page(read_run(tmp_path))
    assert len(text) < 1 << 20
    assert f"{MAX_TABLE_ROWS + 1:,} of 6,000 waves" in text, "the newest, and the one in trouble"


def test_twenty_thousand_waves_are_a_small_page_and_say_that_they_are_thinned(tmp_path: Path) -> None:
    """Read once, in bounded time and memory; the worst case, in which every other wave is in trouble."""
    record_run(tmp_path, waves=40, refused=(20,), out_of_memory=(30,))
    (path,) = tmp_path.glob("*.waves.jsonl")
    lines = [line for line in path.read_text().splitlines() if '"sequence"' not in line]
    troubled = [line for line in lines if '"observed"' not in line]
    mixed = [pair for ran in lines for pair in (ran, troubled[len(ran) % 2])]
    count = 20_000
    with path.open("w") as stream:
        for number in range(count):
            stream.write(re.sub(r'"index":\d+', f'"index":{number}', mixed[number % len(mixed)]) + "\n")
    began = time.process_time()
    report = read_run(tmp_path)
    text = page(report)
    assert time.process_time() - began < 10
    assert len(report.waves) == count and len(text.encode()) < 2 << 20
    assert "20,000 waves are drawn as 160 blocks of 125" in text
    assert f"{2 * MAX_TABLE_ROWS:,} of 20,000 waves" in text
    Outline(text)


def test_a_folder_is_read_within_bounds_and_says_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_run(tmp_path, names=("rank0", "rank1"), waves=40)
    monkeypatch.setattr(run_report, "MAX_WAVES", 50)
    monkeypatch.setattr(html, "MAX_WAVES", 50)
    report = read_run(tmp_path)
    assert len(report.waves) <= 50 and len(report.waves) + report.left_out == 80
    assert {series.waves[-1].index for series in report.series} == {39}, "the newest are kept"
    assert f"{report.left_out} older waves are left out: the newest 50 are read." in page(report)


def test_many_names_are_counted_and_those_with_most_trouble_drawn(tmp_path: Path) -> None:
    record_run(tmp_path, waves=3, names=[f"rank{number:02}" for number in range(MAX_CHARTS + 3)])
    record_run(tmp_path, waves=9, refused=(5, 6), names=("troubled",))
    text = page(read_run(tmp_path))
    assert text.count('class="chart"') == 2 * MAX_CHARTS
    assert "4 more names have no charts here" in text and "<summary>troubled: 9 waves, 2 refused" in text


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 40, 161])
def test_nothing_is_drawn_outside_its_chart(tmp_path: Path, count: int) -> None:
    """Short runs drew bars over the labels and past the edge."""
    record_run(tmp_path, law="frontier", waves=min(count, 40))
    (path,) = tmp_path.glob("*.waves.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{lines[number % len(lines)]}\n" for number in range(count)))
    outline = Outline(page(read_run(tmp_path)))
    bars = [attributes for attributes in outline.all("rect") if "%" in (attributes.get("x") or "")]
    assert bars
    for bar in bars:
        left, width = (float((bar[name] or "").rstrip("%")) for name in ("x", "width"))
        assert left >= 0 and width > 0 and left + width <= 100.01, bar
    for kind, names in (("circle", ("cx",)), ("line", ("x1", "x2")), ("use", ("x",)), ("text", ("x",))):
        for attributes in outline.all(kind):
            for name in names:
                at = attributes.get(name) or ""
                assert not at.endswith("%") or 0 <= float(at.rstrip("%")) <= 100, attributes


def test_what_scales_with_the_page_keeps_its_letters_and_strokes(calm: Path) -> None:
    """No view box around letters or dots: a phone shows the same sizes, and nothing is cut off."""
    outline = Outline(page(read_run(calm)))
    stretched = [attributes for attributes in outline.all("svg") if "viewbox" in attributes]
    assert stretched and all(attributes["class"] == "layer" for attributes in stretched)
    assert "min-width: 620px" not in style_sheet() and "non-scaling-stroke" in style_sheet()


@pytest.mark.parametrize(
    ("largest_bytes", "unit", "labels"),
    [
        (100 << 20, "MiB", ["0", "20", "40", "60", "80", "100", "120"]),
        (3 << 30, "GiB", ["0", "1", "2", "3", "4"]),
        (900 << 10, "KiB", ["0", "200", "400", "600", "800", "1000"]),
        (40, "B", ["0", "10", "20", "30", "40", "50"]),
    ],
)
def test_an_axis_has_the_unit_of_its_figures(largest_bytes: int, unit: str, labels: list[str]) -> None:
    axis = linear_axis(largest_bytes)
    assert axis.unit == unit and [label for _, label in axis.ticks] == labels


# --- the picture of time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_run_over_time_can_be_drawn(troubled: Path, tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"time.{ending}"
    result = run(troubled, "--plot", target)
    assert result.exit_code == 0 and f"Picture: {target}" in result.stdout
    assert target.stat().st_size > 5_000


def test_the_picture_of_time_tells_what_happened(troubled: Path, tmp_path: Path) -> None:
    target = tmp_path / "time.svg"
    record_run(tmp_path / "long", waves=25)
    (path,) = (tmp_path / "long").glob("*.waves.jsonl")
    path.write_text(path.read_text().replace("sequence", "earlier") * 40)
    for folder, words in ((troubled, "rank0: 40 waves"), (tmp_path / "long", "200 blocks of 5")):
        assert run(folder, "--plot", target).exit_code == 0
        drawn = target.read_text()
        for name in ("admitted (", "refused (", "out of memory (", "learned (", words):
            assert f"<!-- {name}" in drawn or name in drawn, name


def test_a_picture_of_nothing_or_of_an_unknown_kind_is_an_error_of_one_line(troubled: Path, tmp_path: Path) -> None:
    for folder, target in ((tmp_path, "time.png"), (troubled, "time.xyz"), (troubled, "time")):
        result = run(folder, "--plot", tmp_path / target)
        assert result.exit_code == 2 and result.stderr.startswith("Error: cannot draw"), result.stderr


def test_what_happened_is_told_in_lanes(troubled: Path) -> None:
    report = read_run(troubled)
    told = Counter(lane for wave in report.waves for lane in lanes_of(wave))
    assert told == {"admitted": 38, "refused": 2, "out of memory": 1, "learned": 37}
    words = " ".join(" ".join(Outline(page(report)).words).split())
    for lane, count in told.items():
        assert f"{lane} ({count})" in words.replace("( ", "(")


# --- restarts, and budgets that shrink -------------------------------------------------------------------------------


def test_restarts_of_a_rank_are_one_series_of_several_processes(tmp_path: Path) -> None:
    for waves in (3, 10, 5):
        record_run(tmp_path, waves=waves)
    report = read_run(tmp_path)
    (series,) = report.series
    assert series.label == "rank0" and series.starts == (0, 3, 13)
    assert [wave.index for wave in series.waves] == [*range(3), *range(10), *range(5)]
    text = page(report)
    assert "18 waves of 3 processes under 1 name" in text
    outline = Outline(text)
    in_both_charts, in_legend = 2, 1
    assert len(outline.all("line", class_="start")) == 2 * in_both_charts + in_legend
    assert {"rank0 (1) 2", "rank0 (2) 9", "rank0 (3) 4"} <= set(outline.words)


def with_budgets(folder: Path, budgets: Callable[[int], int]) -> None:
    """Give every wave line another budget, by its position."""
    (path,) = folder.glob("*.waves.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [json.dumps({**line, "available_bytes": budgets(at)}) for at, line in enumerate(lines)]
    path.write_text("\n".join(told) + "\n")


def test_e09_a_refusal_that_would_have_fitted_before_names_what_grew_and_no_law(tmp_path: Path) -> None:
    """Memory outside the waves grew from step to step: another law would only have put the refusal off."""
    record_run(tmp_path, waves=40, refused=(38, 39))
    with_budgets(tmp_path, lambda at: (95 - 2 * at) * GIB)
    report = read_run(tmp_path)
    runs = [answer.law for item in report.refusals for answer in item.what_ifs if answer.answer is not Answer.REFUSED]
    found = {finding.what: finding.advice for finding in findings_of(report)}
    advice = found["2 waves were refused before anything ran"]
    assert "something outside the waves" in advice and "no law gives that back" in advice
    assert not any(f"{law} law" in advice for law in LAWS), runs
    assert any(what.startswith("the budget of rank0 shrank by ") for what in found)


@pytest.mark.parametrize(
    "budget", [lambda at: 95 * GIB, lambda at: (95 if at else 80) * GIB, lambda at: (90 + at % 9) * GIB]
)
def test_a_budget_that_does_not_fall_all_along_is_not_said_to_shrink(
    tmp_path: Path, budget: Callable[[int], int]
) -> None:
    record_run(tmp_path, waves=40)
    with_budgets(tmp_path, budget)
    assert not [finding for finding in findings_of(read_run(tmp_path)) if "shrank" in finding.what]


def test_a_law_is_advised_for_refusals_only_where_replay_runs_them(tmp_path: Path) -> None:
    """Nothing ran before, so nothing grew: then, and only if it runs, another law is named."""
    record_run(tmp_path, waves=40, refused=range(5, 40))
    with_budgets(tmp_path, lambda at: GIB)
    report = read_run(tmp_path)
    helped = Counter(
        answer.law
        for item in report.refusals
        for answer in item.what_ifs
        if answer.answer is not Answer.REFUSED and answer.law != "logical"
    )
    (advice,) = [finding.advice for finding in findings_of(report) if finding.severity is Severity.REFUSED]
    named = re.search(r"Replayed, (?:all )?(\d+)(?: of \d+)? would have run under the (\w+) law", advice)
    if helped:
        assert named is not None and helped[named[2]] == int(named[1]) == max(helped.values())
    else:
        assert named is None and "No other law would have run them" in advice


def test_a_law_is_advised_for_loose_prices_only_where_replay_prices_closer_and_covers(tmp_path: Path) -> None:
    record_run(tmp_path / "warm", law="warm", trace="moe-1")
    report = read_run(tmp_path / "warm")
    (advice,) = [finding.advice for finding in findings_of(report) if "loose" in finding.what]
    assert "--law frontier" in advice
    answers = [
        (answer, item.record)
        for item in report.records
        for answer in item.what_ifs
        if answer.law == "frontier" and item.record.observed is not None and not WaveSummary.of(item.record).is_cold
    ]
    assert answers and all(answer.under_bytes == 0 for answer, _ in answers)
    assert sum(answer.required_bytes < record.required_bytes for answer, record in answers) > len(answers) // 2
    record_run(tmp_path / "under", law="warm", trace="moe-1", under=(30,))
    advices = [finding.advice for finding in findings_of(read_run(tmp_path / "under")) if "loose" in finding.what]
    assert advices and all("--law" not in advice for advice in advices), "no law that lies under a peak"


def test_many_refusals_are_counted_not_all_told(tmp_path: Path) -> None:
    record_run(tmp_path, waves=40, refused=range(8, 38))
    text = page(read_run(tmp_path))
    assert text.count('<details class="card') == MAX_CARDS
    assert text.count('<details class="card refused" open>') == 3
    assert "6 more are in the folder" in text


def test_every_binding_term_of_the_laws_has_words() -> None:
    assert {str(term) for term in BindingTerm} <= set(TERM_WORDS)
    assert {"frontier", "frontier_clamped", "frontier_lifted"} <= set(TERM_WORDS)


# --- colours ---------------------------------------------------------------------------------------------------------

TEXT_ON = [
    ("ink", "page"),
    ("ink", "card"),
    ("ink", "lane"),
    ("soft", "page"),
    ("soft", "card"),
    ("ink", "failed-wash"),
    ("ink", "refused-wash"),
    ("ink", "good-wash"),
    ("ink", "notice-wash"),
    ("failed", "card"),
    ("refused", "card"),
    ("page", "failed"),
    ("page", "refused"),
    ("page", "good"),
    ("page", "price"),
]
MARKS = (
    *("price", "observed", "budget", "refused", "failed", "used", "good"),
    *(f"part-{part}" for part in ("outputs", "model", "rows", "segments", "safety", "footprint")),
)


def themes() -> dict[str, dict[str, str]]:
    """The style sheet's variables in light and in dark."""
    light, dark = re.findall(r":root \{(.*?)\}", style_sheet(), re.S)
    found = {name: dict(re.findall(r"--([\w-]+): (#\w+)", text)) for name, text in (("light", light), ("dark", dark))}
    return {"light": found["light"], "dark": {**found["light"], **found["dark"]}}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_can_be_told_from_their_ground(theme: str) -> None:
    colours = themes()[theme]
    for text, ground in TEXT_ON:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for mark in MARKS:
        for ground in ("page", "over", "card"):
            assert contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
