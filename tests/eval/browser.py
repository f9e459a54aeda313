"""A page in headless Chromium: its DOM, or a tab with a real keyboard and mouse, driven over the debugging pipe."""

import contextlib
import json
import os
import shutil
import subprocess
import threading

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-component-update"]
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}


def browse(folder, url, *options):
    """The page's DOM after its scripts ran."""
    command = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", *options, "--virtual-time-budget=3000"]
    return subprocess.run([*command, "--dump-dom", url], check=True, capture_output=True, text=True, timeout=120).stdout


class Tab:
    """An open page; its policy stays in force."""

    def __init__(self, read, write):
        self._read, self._write, self._count, self._session = read, write, 0, None

    def call(self, method, **params):
        """Calls a method of the DevTools protocol and returns its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._message()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self):
        found = bytearray()
        while (byte := self._read.read(1)) != b"\0":
            assert byte, "the browser has gone"
            found += byte
        return json.loads(found)

    def attach(self):
        """Makes a tab, which all later calls are about."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def go(self, url):
        """Opens a page and waits until it has loaded."""
        self.call("Page.navigate", url=url)
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def get(self, expression):
        """The value of an expression in the page, or what it promises; plain data only."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        """Presses a key, such as `ArrowRight`, where the focus is."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)
            text = {}

    def mouse(self, kind, element, across=0.5, **params):
        """A mouse event on an element, given as an expression, `across` of its width from the left."""
        x, y = self.get(
            f"(() => {{ {element}.scrollIntoView({{block: 'center'}}); const box = {element}.getBoundingClientRect();"
            f" return [box.x + box.width * {across}, box.y + box.height / 2]; }})()"
        )
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def click(self, element, across=0.5):
        """Clicks on an element, given as an expression, `across` of its width from the left."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, element, across, button="left", clickCount=1)


@contextlib.contextmanager
def new_tab(folder):
    """Starts a browser with an empty tab, and ends it afterwards."""
    ours_read, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()
    command = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
    # The browser reads from descriptor 3 and writes to 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{theirs_read} 4>&{theirs_write}', "bash", *command]
    with (
        os.fdopen(ours_read, "rb") as read,
        os.fdopen(ours_write, "wb") as write,
        subprocess.Popen(shell, pass_fds=(theirs_read, theirs_write), stderr=subprocess.DEVNULL) as process,
    ):
        os.close(theirs_read)
        os.close(theirs_write)
        limit = threading.Timer(120, process.kill)
        limit.start()
        try:
            tab = Tab(read, write)
            tab.attach()
            yield tab
            tab.call("Browser.close")
        finally:
            limit.cancel()
            process.kill()
