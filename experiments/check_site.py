"""Show every page of a built site to a browser: none may scroll sideways on a phone, or ask the network for anything.

python -m experiments.check_site build/site    # exit 1 with one line per fault; 0 without a browser, and says so

Pages are shown one after the other in a frame as wide as a phone, served by this process.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PHONE = 390  # width of the frame in CSS pixels
TIMEOUT_SECONDS = 300.0
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1000,900"),
    *("--virtual-time-budget=600000", "--dump-dom"),
)
PROBE = """<!doctype html><meta charset="utf-8"><title>probe</title><body>
<iframe id="frame" width="WIDTH" height="800"></iframe>
<script>
const pages = PAGES, found = [], frame = document.getElementById("frame");
function show(page) {
  return new Promise((done) => {
    frame.onload = () => setTimeout(() => done(), 50);
    frame.src = page;
  });
}
(async () => {
  for (const page of pages) {
    await show(page);
    const root = frame.contentDocument.documentElement, inside = frame.contentWindow;
    const requests = inside.performance.getEntriesByType("resource").map((entry) => entry.name);
    const images = [...frame.contentDocument.images].filter((image) => image.loading !== "lazy");
    found.push({
      page, wide: root.scrollWidth, shown: root.clientWidth,
      outside: requests.filter((name) => !name.startsWith(location.origin) && !name.startsWith("data:")),
      broken: images.filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
    });
  }
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
})();
</script>"""


@dataclass(frozen=True)
class Seen:
    """A page as the browser showed it."""

    page: str
    wide: int  # content, in CSS pixels
    shown: int  # frame
    outside: Sequence[str]  # addresses outside the site that it asked for
    broken: Sequence[str]  # images that did not load

    @property
    def faults(self) -> list[str]:
        """Describe what is wrong."""
        faults = [f"{self.page} asks for {address}" for address in self.outside]
        faults += [f"{self.page} shows no {address}" for address in self.broken]
        if self.wide > self.shown:
            faults.append(f"{self.page} is {self.wide} pixels wide in a window of {self.shown}")
        return faults


def find_browser() -> str | None:
    """Find Chromium or Chrome on the PATH."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def list_pages(site: Path) -> list[str]:
    """List the pages of a site, without fragments of its theme."""
    pages = (path.relative_to(site) for path in site.rglob("*.html"))
    return sorted(str(page) for page in pages if not page.parts[0].startswith("_"))


class Handler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and the probe."""

    def __init__(self, *args: Any, probe: bytes, **options: Any) -> None:
        self.probe = probe
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path != "/probe.html":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.probe)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serve(site: Path, probe: str) -> Iterator[str]:
    """Serve a folder on this machine; yield the address of the probe."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site), probe=probe.encode())) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/probe.html"
        finally:
            server.shutdown()


def look(site: Path, pages: Sequence[str], browser: str, width: int = PHONE) -> list[Seen]:
    """Show pages to a browser, one after the other."""
    probe = PROBE.replace("WIDTH", str(width)).replace("PAGES", json.dumps(list(pages)))
    with tempfile.TemporaryDirectory() as profile, serve(site, probe) as address:
        command = [browser, *OPTIONS, f"--user-data-dir={profile}", address]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True)
    found = re.search(r'<pre id="probe">(.*?)</pre>', result.stdout, re.DOTALL)
    if found is None:
        raise SystemExit(f"The browser did not finish: {result.stderr[-500:]}")
    return [Seen(**each) for each in json.loads(found[1].replace("&amp;", "&"))]


def main() -> None:
    """Look at all pages of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    site = parser.parse_args().site
    browser, pages = find_browser(), list_pages(site)
    if browser is None:
        print("no chromium: the pages were not looked at")
        return
    faults = [fault for seen in look(site, pages, browser) for fault in seen.faults]
    print("\n".join(faults) or f"{len(pages)} pages: none scrolls sideways, none asks the network for anything")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
