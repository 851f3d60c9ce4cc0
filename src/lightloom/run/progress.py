"""One line on stderr while a run goes on; every loss and recovery as it happens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TextIO

import msgspec

from lightloom.core.lang import _


class Progress:
    """Reads what the agents append; call it often."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self.folder, self.out, self.live = folder, out, out.isatty()
        self.at: dict[Path, int] = {}
        self.said: set[tuple[Any, ...]] = set()
        self.shown, self.step, self.told = 0.0, 0, 0
        self.loss: float | None = None
        self.wide = 0

    def _new(self, kind: str) -> list[dict[str, Any]]:
        lines = []
        for path in sorted(self.folder.glob(f"agent-*.{kind}")):
            with open(path, "rb") as stream:
                stream.seek(self.at.get(path, 0))
                data = stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.at[path] = self.at.get(path, 0) + len(whole)
            lines += [msgspec.json.decode(x) for x in whole.splitlines()]
        return lines

    def __call__(self) -> None:
        """Show what is new."""
        for event in sorted(self._new("events"), key=lambda e: int(e["at_ns"])):
            self._event(event)
        for line in self._new("steps"):
            if int(line["step"]) >= self.step:
                self.step, self.loss = int(line["step"]), line["loss"]
        if self.step > self.told and time.monotonic() - self.shown > (0.2 if self.live else 5.0):
            self.shown, self.told = time.monotonic(), self.step
            loss = "" if self.loss is None else f"  loss {self.loss:.4f}"
            self._write(f"step {self.step}{loss}", over=True)

    def _event(self, e: dict[str, Any]) -> None:
        kind = e["kind"]
        text = ""
        key: tuple[Any, ...] = (kind, e.get("number"), e.get("uid"), e.get("step"), e.get("lost"))
        if kind == "epoch":
            key = (kind, e["number"])
            lost = f", {e['lost']} steps lost" if e["lost"] else ""
            cost = f", expected {e['expected_s']:.2f} s" if "lost" in e["why"] else ""
            text = (f"epoch {e['number']} ({e['why']}): {len(e['members'])} ranks from step "
                    f"{e['base']}{lost}{cost}")  # fmt: skip
        elif kind == "death":
            text = f"rank {e['slot']} ended: {e['how'] or _how(e['code'])}"
        elif kind == "hang":
            where = f" at {e['stack'][0]}" if e["stack"] else ""
            text = f"rank {e['slot']} hangs ({e['how']}) in step {e['step'] + 1}{where}"
        elif kind == "note":
            text = f"{e['code']}: {e['text']}"
        elif kind == "snapshot" and e["why"]:
            text = f"snapshot of step {e['step']} failed: {e['why']}"
        elif kind == "stop":
            key, text = (kind,), _("stopping after the present step")
        if text and key not in self.said:
            self.said.add(key)
            self._write(text, over=False)

    def _write(self, text: str, over: bool) -> None:
        if self.live:
            pad = " " * max(self.wide - len(text), 0)
            self.out.write(f"\r{text}{pad}" + ("" if over else "\n"))
            self.wide = len(text) if over else 0
        else:
            self.out.write(f"{text}\n")
        self.out.flush()

    def close(self) -> None:
        """Show the rest and end the line."""
        self()
        if self.live and self.wide:
            self.out.write("\n")


def _how(code: int | None) -> str:
    if code is None:
        return "?"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
