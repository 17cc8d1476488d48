"""Makes `docs/report.png`, the picture of the report in the README, with headless Chromium.

python -m tests.browser.picture docs/report.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pricing.report.html import page
from pricing.report.run_report import read_run
from tests.browser.check_report_page import browse
from tests.records.recorded_run import record_run


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "records"
        record_run(folder, waves=55, refused=(20, 21, 22, 23, 24), out_of_memory=(30,), under=(35,))
        report = Path(name) / "report.html"
        report.write_text(page(read_run(folder)))
        options = ("--window-size=1120,1560", "--blink-settings=preferredColorScheme=1")
        browse(report, f"--screenshot={Path(target).resolve()}", *options)


if __name__ == "__main__":
    main(sys.argv[1])
