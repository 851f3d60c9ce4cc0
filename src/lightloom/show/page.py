"""One self-contained HTML page: verdict on top, pictures, tables, how to re-make it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from lightloom.core.lang import _

_STYLE = """
:root{color-scheme:light}
body{font:15px/1.5 system-ui,"Noto Sans SC",sans-serif;color:#222;max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .4rem}
.grey,.grey *{color:#666;fill:#666}.verdict{font-size:1.2rem;border-left:.3rem solid #0072b2;
padding:.4rem .9rem;margin:1rem 0;background:#f4f8fb}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #eee;vertical-align:top}
th:first-child,td:first-child,td.l,th.l{text-align:left}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}
.legend span{margin-right:1.2rem}.legend i{display:inline-block;width:.9em;height:.9em;
margin-right:.4em;vertical-align:-.1em}
code{background:#f3f3f3;padding:.1em .3em}:target{background:#fff3c4}
@media print{body{margin:0;font-size:11px}h2{margin-top:1rem}section{break-inside:avoid}}
"""


class Section(NamedTuple):
    """A heading and ready HTML under it."""

    title: str
    html: str


def paragraph(text: str, kind: str = "") -> str:
    """Return escaped text as a paragraph."""
    name = f' class="{kind}"' if kind else ""
    return f"<p{name}>{escape(text)}</p>"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    ids: Sequence[str] = (),
    left: int = 1,
    words: Sequence[int] = (),
) -> str:
    """Return an HTML table; the first `left` columns and those in `words` are words, the others
    figures."""
    left_C = {*range(left), *words}
    head = "".join(f"<th{_class(i in left_C)}>{escape(name)}</th>" for i, name in enumerate(header))
    body = []
    for n, row in enumerate(rows):
        key = f' id="{escape(ids[n], True)}"' if n < len(ids) and ids[n] else ""
        cells = "".join(f"<td{_class(i in left_C)}>{escape(c)}</td>" for i, c in enumerate(row))
        body.append(f"<tr{key}>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _class(words: bool) -> str:
    return ' class="l"' if words else ""


def page(title: str, subtitle: str, verdict: str, sections: Sequence[Section], made: str) -> str:
    """Return the page; `made` is the command that makes it again."""
    parts = [
        "<!doctype html><html><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>{paragraph(subtitle, 'grey')}",
        f"<div class='verdict'>{escape(verdict)}</div>",
    ]
    parts += [f"<section><h2>{escape(s.title)}</h2>{s.html}</section>" for s in sections if s.html]
    parts.append(f"<p class='grey'>{escape(_('made by'))} <code>{escape(made)}</code></p>")
    parts.append("</body></html>\n")
    return "".join(parts)
