"""Take a picture of a report for the README: ``report_picture.py REPORT.html [docs/images/report.png] [--at ID]``.

Needs chromium and chromedriver. The picture shows the head of the page, or the element with an id, in the light theme.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
MOST_BYTES = 300_000


@contextmanager
def open_browser(*, width: int, height: int, scale: float = 1.0, flags: Sequence[str] = ()) -> Iterator[Chrome]:
    """Start a headless chromium with a profile of its own, and end it.

    Args:
        width: Width of the view in CSS pixels.
        height: Height of the view in CSS pixels.
        scale: Device pixels per CSS pixel.
        flags: Further command line flags.
    """
    with tempfile.TemporaryDirectory(prefix="report-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, *flags, f"--user-data-dir={profile}", f"--force-device-scale-factor={scale}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))
        try:
            # A window cannot be narrower than 500 pixels; an emulated screen can.
            metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            yield driver
        finally:
            driver.quit()


def take(report: Path, *, at: str = "", width: int = 1180, height: int = 1000, scale: float = 1.5) -> bytes:
    """Return a PNG of a report, scrolled to the element with an id; without one, of its head."""
    with open_browser(width=width, height=height, scale=scale) as driver:
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        )
        driver.get(report.resolve().as_uri())
        if at:
            driver.execute_script("document.getElementById(arguments[0]).scrollIntoView()", at)
        return bytes(driver.get_screenshot_as_png())


def main() -> int:
    """Take the picture at the largest scale that fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path, nargs="?", default=Path("docs/images/report.png"))
    parser.add_argument("--at", default="", help="id of the element to show, such as numerical-section")
    arguments = parser.parse_args()
    for scale in (1.5, 1.25, 1.0):
        picture = take(arguments.report, at=arguments.at, scale=scale)
        if len(picture) <= MOST_BYTES:
            arguments.picture.parent.mkdir(parents=True, exist_ok=True)
            arguments.picture.write_bytes(picture)
            print(f"{arguments.picture}: {len(picture)} bytes at scale {scale}")
            return 0
    print(f"the picture is over {MOST_BYTES} bytes even at scale 1", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
