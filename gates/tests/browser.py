"""Drives Debian's chromium over its debugging pipe (file descriptors 3 and 4, messages end in NUL).  Standard library alone."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    def __init__(self, program, width=1280, height=900):
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        self.profile = tempfile.mkdtemp(prefix="assay-browser-")

        # high numbers first: 3 and 4 may be in use by the pipes themselves
        def wire():
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(os.dup(a), 3, inheritable=True)
            os.dup2(b, 4, inheritable=True)
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=wire)
        os.close(to_child)
        os.close(from_child)
        self.out, self.into, self.buffer, self.n, self.events = from_parent, to_parent, b"", 0, []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def read(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, deadline - time.time()))[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self.into, 1 << 20)
            if not chunk:
                raise EOFError("the browser ended")
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, seconds=90, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.time() + seconds
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def js(self, expression, seconds=90):
        r = self.call("Runtime.evaluate", seconds, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails'].get('exception', {}).get('description')}")
        return r["result"].get("value")

    def open(self, path, seconds=90):
        """Loads a file; returns milliseconds until it said that it is ready."""
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        deadline = time.time() + seconds
        while time.time() < deadline:
            ready = self.js("document.documentElement?.dataset.ready || null", seconds)
            if ready:
                return int(ready)
            time.sleep(.05)
        raise TimeoutError(f"{path}: not ready after {seconds} s; {self.complaints()}")

    def complaints(self):
        """Console errors, exceptions, and requests for anything but the page and data: URLs."""
        out = []
        for e in self.events:
            p = e["params"]
            if e["method"] == "Runtime.exceptionThrown":
                out.append(p["exceptionDetails"].get("exception", {}).get("description", p["exceptionDetails"]["text"]))
            elif e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                out.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
            elif e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                out.append(p["entry"]["text"])
            elif e["method"] == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("data:", "file:")):
                out.append("requests " + p["request"]["url"])
        files = [e for e in self.events if e["method"] == "Network.requestWillBeSent" and e["params"]["request"]["url"].startswith("file:")]
        return out + [f"{len(files)} files were read"] * (len(files) > 1)

    def key(self, name):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode={
                "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27, "Home": 36, "End": 35, "Tab": 9}[name])

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def look(self, width=1280, dark=False, media=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def shot(self, path, whole=True, most=9000):
        height = min(self.js("Math.ceil(document.documentElement.scrollHeight)"), most) if whole else 900
        width = self.js("innerWidth")
        # lazily drawn parts see the whole page
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        time.sleep(.4)
        png = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(png))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close", 5)
            self.process.wait(10)
        except (OSError, EOFError, TimeoutError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
