"""The page of `pricing report` in a real browser: it loads, draws, and says nothing on the console.

Not part of CI (its name is not that of a test module); run it where headless Chromium is installed:

    pytest tests/browser/check_report_page.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pricing.report.html import page, style_sheet
from pricing.report.run_report import read_run
from tests.records.recorded_run import record_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")

Pixels = Counter[tuple[int, int, int]]


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    record_run(folder, waves=40, refused=(20,), out_of_memory=(30,), under=(35,))
    path = folder / "report.html"
    path.write_text(page(read_run(folder)))
    return path


def browse(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={path.parent / 'browser'}", "--enable-logging=stderr", *options, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done


def console_lines(path: Path) -> list[str]:
    return [line for line in browse(path, "--dump-dom").stderr.splitlines() if ":CONSOLE" in line]


def test_it_loads_and_says_nothing_on_the_console(report_file: Path) -> None:
    done = browse(report_file, "--dump-dom")
    assert "<main>" in done.stdout and done.stdout.count("<svg") >= 4
    assert "What happened, and what to do" in done.stdout
    assert [line for line in done.stderr.splitlines() if ":CONSOLE" in line] == []


def test_the_console_check_hears_a_page_that_breaks_its_own_rules(report_file: Path) -> None:
    broken = report_file.with_name("broken.html")
    broken.write_text(report_file.read_text().replace("<main>", '<main><img src="https://example.invalid/x.png">'))
    assert any("Content Security Policy" in line for line in console_lines(broken))


@pytest.mark.parametrize("width", [390, 1_200])
def test_nothing_sticks_out_of_the_page(report_file: Path, width: int) -> None:
    """Measured by the browser: in a frame of that width the page scrolls down only; wide tables scroll in their box."""
    frame = report_file.with_name(f"frame-{width}.html")
    told = (
        'onload="const root = this.contentDocument.documentElement; document.title = '
        "'wide ' + root.scrollWidth + ' svg ' + Math.max(...[...root.querySelectorAll('svg.plot')].map("
        'one => Math.round(one.getBoundingClientRect().right)))"'
    )
    source = report_file.read_text().replace("&", "&amp;").replace('"', "&quot;")
    frame.write_text(f'<iframe width="{width}" height="900" style="border:0" srcdoc="{source}" {told}></iframe>')
    done = browse(frame, "--dump-dom")
    measured = re.search(r"<title>wide (\d+) svg (\d+)</title>", done.stdout)
    assert measured is not None, done.stdout[:500]
    assert int(measured[1]) <= width and 0 < int(measured[2]) <= width


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_draws_in_light_and_in_dark(report_file: Path, theme: str) -> None:
    pixels = screenshot(report_file, theme)
    colours = variables(theme)
    ground, _ = pixels.most_common(1)[0]
    assert close(ground, colours["page"]), f"the page's ground is {ground}"
    for name in ("price", "observed", "refused", "failed", "failed-wash", "part-model"):
        drawn = sum(count for pixel, count in pixels.items() if close(pixel, colours[name]))
        assert drawn >= 60, f"{name} was not drawn"


def screenshot(path: Path, theme: str) -> Pixels:
    """The colours of the page's first screens, by number of pixels."""
    image = pytest.importorskip("PIL.Image")
    target = path.with_name(f"{theme}.png")
    scheme = "0" if theme == "dark" else "1"
    browse(
        path,
        f"--screenshot={target}",
        "--window-size=1200,2000",
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    raw = image.open(target).convert("RGB").tobytes()
    return Counter(zip(raw[0::3], raw[1::3], raw[2::3], strict=True))


def variables(theme: str) -> dict[str, tuple[int, int, int]]:
    """The style sheet's colours in one theme."""
    light, dark = re.findall(r":root \{(.*?)\}", style_sheet(), re.S)
    texts = dict(re.findall(r"--([\w-]+): #(\w{6})", light if theme == "light" else dark))
    return {name: (int(text[:2], 16), int(text[2:4], 16), int(text[4:], 16)) for name, text in texts.items()}


def close(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return all(abs(left - right) <= 4 for left, right in zip(one, other, strict=True))
