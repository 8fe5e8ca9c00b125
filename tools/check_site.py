"""Look at every page of the site on a telephone: nothing wider than the screen, nothing loaded from elsewhere. Run
axe-core on it, on a wide screen too, where npm has it. Grade exercises on the page that does so.

    python tools/check_site.py site [--pictures FOLDER]      with Chromium, which has to be installed

The screen is 390 pixels wide. Exit status 1 and a line for each page that is not as it should be.
"""

from __future__ import annotations

import argparse
import http.server
import json
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "packages/bpe/tests"))
import chromium  # the tests of bpe's pages speak to the same browser

SOLUTIONS = Path(__file__).parent.parent / "tests/course_solutions"
WIDTH, HEIGHT = 390, 844
LOOK = """(() => {
  const wide = [...document.querySelectorAll("main *")].filter(one => {
    for (let around = one; around && around.tagName != "MAIN"; around = around.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(around).overflowX)) return false;
    return one.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
  });
  const loaded = performance.getEntriesByType("resource").map(one => one.name);
  return JSON.stringify({
    wide: wide.slice(0, 3).map(one => one.tagName + " " + (one.textContent || "").trim().slice(0, 40)),
    elsewhere: loaded.filter(name => !name.startsWith(location.origin)),
    small: parseFloat(getComputedStyle(document.querySelector("main p") || document.body).fontSize),
  });
})()"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing for each request."""


def faults(browser: chromium.Chromium, address: str, picture: Path | None) -> list[str]:
    """Faults of a page, a sentence each."""
    browser.call("Page.navigate", url=address)
    while browser.run("document.readyState") != "complete":
        time.sleep(0.02)
    if picture is not None:
        browser.picture(picture)
    seen = json.loads(str(browser.run(LOOK)))
    faults = [f"wider than {WIDTH} pixels: {what}" for what in seen["wide"]]
    faults += [f"loads {name}" for name in seen["elsewhere"]]
    if seen["small"] < 14:
        faults.append(f"text of {seen['small']} pixels: too small to read")
    return faults


def exercise_faults(browser: chromium.Chromium, address: str) -> list[str]:
    """Grade the solutions of the chapters on the page of exercises; a sentence for each that is not right."""
    browser.call("Page.navigate", url=address)
    while browser.run("document.getElementById('code')?.value.length > 100 && document.readyState") != "complete":
        time.sleep(0.02)
    wrong = []
    for chapter in (1, 2, 3, 5, 11):
        name = next(SOLUTIONS.glob(f"ex{chapter}_*.py")).name
        solution = json.dumps((SOLUTIONS / name).read_text(encoding="utf-8"))
        browser.run(f"chapter.value = {chapter}; code.value = {solution}; grade.click()")
        while browser.run("grade.textContent") != "Grade":
            time.sleep(0.1)
        lines = str(browser.run("result.textContent")).splitlines()
        if not lines or any(line.startswith("✗") for line in lines) or " right" not in lines[-1]:
            wrong.append(f"chapter {chapter} is graded: {' '.join(lines)}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of each page's first screen")
    options = parser.parse_args()
    if chromium.PATH is None:
        print("no Chromium was found: how the pages look on a telephone was not checked (CHROMIUM names one)")
        return
    pages = sorted(options.site.rglob("index.html"))
    if not pages:
        raise SystemExit(f"{options.site}: there is no page in it; nox -s docs builds the site")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(options.site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wrong = 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        chromium.Chromium(Path(folder), (WIDTH, HEIGHT)) as browser,
    ):
        if (options.site / "pyodide").exists():
            for fault in exercise_faults(browser, f"http://127.0.0.1:{server.server_port}/course/try/"):
                print(f"course/try: {fault}")
                wrong += 1
        axe = chromium.axe(Path(folder))
        screen = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 2, "mobile": True}
        for page in pages:
            browser.call("Emulation.setDeviceMetricsOverride", **screen)
            name = str(page.parent.relative_to(options.site))
            picture = options.pictures and options.pictures / f"{name.replace('/', '-').replace('.', 'index')}.png"
            mistakes = faults(browser, f"http://127.0.0.1:{server.server_port}/{name}/", picture)
            if axe is not None:
                mistakes += [f"axe: {rule}" for width in (WIDTH, 1280) for rule in browser.violations(axe, width)]
            for fault in mistakes:
                print(f"{name}: {fault}")
                wrong += 1
    server.shutdown()
    print(f"{len(pages)} pages at {WIDTH} pixels, {wrong} faults")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
