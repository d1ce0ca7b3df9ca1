"""Takes the picture of the HTML report that the docs show: `python tests/docpicture.py`, with Chromium installed."""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from chromium import opened, started

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "img" / "report.png"
WIDTH, HEIGHT = 920, 860


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--llmroof-gpu=h100",
             "examples/failing/d-host-gaps.llmroof.yaml", f"--llmroof-report={page}"],
            cwd=ROOT, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        with started() as browser, opened(browser, page, width=WIDTH, height=HEIGHT) as tab:
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
            data = tab.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main()
