"""The report in a real browser: headless Chromium without a network, driven over its DevTools pipe."""

import base64
import contextlib
import fcntl
import io
import json
import math
import os
import select
import signal
import subprocess
import time

import numpy as np
import pytest
from real_programs import binary

from asd.exporters.report.data import read_run
from asd.exporters.report.page import render
from asd.exporters.report.words import verdict_on
from asd.rundir.names import status_file
from tests.support.run_of_ranks import START, Rank

pytestmark = pytest.mark.stack

SITES = tuple(f"model.layers.{i}.{name}" for i in range(8) for name in ("attention_norm", "feed_forward.w2"))
CHINESE = ("模型.第一层.注意力归一化" * 3, "模型.第二层<script>document.title='taken'</script>", "x" * 180)
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --remote-debugging-pipe --hide-scrollbars
"""
NO_HOSTS = "--host-resolver-rules=MAP * ~NOTFOUND"


class Browser:
    """Chromium over its DevTools pipe; file descriptors 3 and 4 are the ones it expects."""

    def __init__(self, profile):
        # Copies with high numbers: the originals may be 3 and 4 themselves.
        pipes = [os.pipe(), os.pipe()]
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for pipe in pipes for end in pipe]
        theirs_in, self._out, self._in, theirs_out = ends
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])

        def give() -> None:
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        words = [binary("chromium"), *FLAGS.split(), NO_HOSTS, f"--user-data-dir={profile}", "about:blank"]
        how = {"preexec_fn": give, "pass_fds": (3, 4), "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.process = subprocess.Popen(words, **how)
        os.close(theirs_in)
        os.close(theirs_out)
        self._left, self._number, self.events = b"", 0, []
        target = self("Target.createTarget", session="", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", session="", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self(f"{domain}.enable")

    def __call__(self, method, *, session=None, **arguments):
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        session = self.session if session is None else session
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        return self._until(lambda answer: answer.get("id") == self._number)["result"]

    def _until(self, wanted):
        deadline = time.monotonic() + 30
        while True:
            line, end, rest = self._left.partition(b"\0")
            if end:
                self._left = rest
                answer = json.loads(line)
                self.events.append(answer)
                if wanted(answer):
                    return answer
                continue
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser did not answer in time"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser has ended"
            self._left += read

    def open(self, path, *, width=1200, dark=False):
        """Shows a file and returns what happened meanwhile, by method."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self("Emulation.setEmulatedMedia", features=features)
        self("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self("Page.navigate", url=path.as_uri())
        self._until(lambda answer: answer.get("method") == "Page.loadEventFired")
        self("Runtime.evaluate", expression="new Promise(r => setTimeout(r, 100))", awaitPromise=True)
        return [event for event in self.events if "method" in event]

    def value(self, expression):
        return self("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def screenshot(self):
        """The whole page as an array of height, width and colour."""
        data = self("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        image = pytest.importorskip("PIL.Image")
        return np.asarray(image.open(io.BytesIO(base64.b64decode(data)))) / 255

    def close(self):
        try:
            self("Browser.close", session="")
            self.process.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)
            os.close(self._in)
            os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def clean(folder):
    Rank(folder, sites=SITES).train(1, 50).end()


def one_fault(folder):
    clean(folder)
    culprit = Rank(folder, 1, sites=SITES).train(1, 40, {40: {SITES[3]: 5e8, SITES[2]: math.inf}})
    culprit.tell("replay", 40, verdict="persistent", reason="the same wrong answer")
    culprit.tell("isolation", 40, verdict="persistent", reason="3 strikes in 480 minutes").train(41, 50).end()


def many_events(folder):
    for number in range(8):
        rank = Rank(folder, number, sites=SITES, host="node8-with-a-very-long-name.cluster.example.internal")
        broken = range(10, 300, 9 + number) if number % 3 == 0 else ()
        for step in range(1, 301):
            wrong = {step: {SITES[number]: 2e6 * step}} if step in broken else {}
            rank.train(step, step, wrong)
            for kind in ("replay", "isolation") if wrong else ():
                rank.tell(kind, step, verdict="persistent", reason="the same wrong answer")
        rank.end()


def problems_only(folder):
    rank = Rank(folder, sites=SITES).train(1, 50)
    rank.monitor.problem("the kernel can't be loaded: " + "/very/long/path" * 20)
    rank.end()
    status_file(folder, 1).write_text("{")


def chinese_names(folder):
    where = {"host": "训练节点-七号机房" * 4, "run": "大模型预训练" * 15}
    Rank(folder, sites=CHINESE, **where).train(1, 50, {33: {CHINESE[1]: 7e7}}).end()


CASES = (clean, one_fault, many_events, problems_only, chinese_names)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    request.param(folder)
    data = read_run(folder)
    path = folder / "report.html"
    path.write_text(render(data, path, now=START + 1000), encoding="utf-8")
    return path, verdict_on(data)


def asked_for(happened):
    return [event["params"]["request"]["url"] for event in happened if event["method"] == "Network.requestWillBeSent"]


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (400, False)])
def test_the_report_looks_right(browser, page, width, dark):
    path, verdict = page
    happened = browser.open(path, width=width, dark=dark)

    assert asked_for(happened) == [path.as_uri()]
    said = [event for event in happened if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled")]
    assert said == []
    assert not [event for event in happened if event["method"] == "Runtime.exceptionThrown"]

    text = " ".join(browser.value("document.body.innerText").split())
    assert " ".join(verdict.lead.split()) in text
    assert browser.value("document.title") != "taken"
    assert browser.value("getComputedStyle(document.querySelector('.verdict')).borderLeftWidth") == "6px"

    assert browser.value("document.documentElement.scrollWidth") <= width
    if width == 1200:
        assert browser.value(SCROLLED) == []
    assert browser.value(OUTSIDE) == []
    assert browser.value(CUT) == []
    assert browser.value(OVERLAPPING) == []

    picture = browser.screenshot()[..., :3]
    height = min(900, len(picture))
    assert picture.shape[1] == width
    colours = {tuple(colour) for colour in (picture[:height:3, ::3].reshape(-1, 3) * 15).round().astype(int).tolist()}
    assert len(colours) > 20
    assert (picture[5, 5].mean() < 0.3) == dark


SCROLLED = """
[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.innerText.slice(0, 100))
"""
"""Tables and pictures that do not fit and have to be scrolled."""

OUTSIDE = """
[...document.querySelectorAll('section, h1, h2, .lead, .more li, .cards div, figure, article')]
  .filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML.slice(0, 200))
"""
"""What sticks out on the right."""

CUT = """
[...document.querySelectorAll('svg text')].filter(each => {
  const box = each.getBoundingClientRect(), picture = each.closest('svg').getBoundingClientRect();
  return box.width && (box.left < picture.left - 1 || box.right > picture.right + 1 || box.top < picture.top - 1
    || box.bottom > picture.bottom + 1);
}).map(each => each.outerHTML)
"""
"""Texts that leave their picture."""

OVERLAPPING = """
[...document.querySelectorAll('svg')].flatMap(picture => {
  const boxes = [...picture.querySelectorAll('text')].map(each => [each, each.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
    .filter(([two, b]) => a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3
      && b.top < a.bottom - 3).map(([two]) => one.textContent + ' on ' + two.textContent));
})
"""
"""Texts of a picture that lie on each other."""


def test_the_checks_of_the_looks_can_fail(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        "<!DOCTYPE html><script>console.error('x')</script><img src='http://127.0.0.1:9/x'>"
        "<section style='width:3000px'><svg viewBox='0 0 50 20' width=50 height=20>"
        "<text y=15>much too long</text><text x=5 y=16>in</text></svg></section>"
    )
    happened = browser.open(path)
    assert asked_for(happened) == [path.as_uri(), "http://127.0.0.1:9/x"]
    assert "Runtime.consoleAPICalled" in {event["method"] for event in happened}
    assert browser.value("document.documentElement.scrollWidth") > 1200
    assert len(browser.value(OUTSIDE)) == 1
    assert browser.value(CUT) == ['<text y="15">much too long</text>']
    assert browser.value(OVERLAPPING) == ["much too long on in"]


def test_a_script_that_got_into_the_page_would_not_run(browser, tmp_path):
    clean(tmp_path)
    page = render(read_run(tmp_path), tmp_path / "r.html", now=START)
    path = tmp_path / "r.html"
    path.write_text(page.replace("<main>", "<script>document.title='taken'</script><main>"), encoding="utf-8")
    happened = browser.open(path)
    assert browser.value("document.title") == "No anomaly: run1"
    assert "violates the following Content Security Policy directive" in str(happened)
