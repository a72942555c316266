"""Mathematics: the formulas of docstrings as TeX, and TeX as MathML, which browsers show without a script.

A formula of a docstring is plain text, a line per equation, as in

    x_i <- sum_j W_ij x_j - lr g_i(x_i)      (sent to all neighbours)

Two spaces or more separate parts of a line. Words of several letters are words unless they are listed
below, and single letters are symbols.
"""

import html
import re

_GREEK = ["alpha", "beta", "gamma", "delta", "theta", "kappa", "mu", "phi", "psi", "rho", "sigma", "xi"]
_SYMBOLS = {
    "eps": r"\varepsilon",
    "grad": r"\nabla",
    "in": r"\in",
    "lr": r"\mathrm{lr}",
    "sum": r"\sum",
    "max": r"\max",
    "argmin": r"\operatorname{argmin}",
    "Proj": r"\operatorname{Proj}",
    "Lap": r"\operatorname{Lap}",
    "Bernoulli": r"\operatorname{Bernoulli}",
    "xhat": r"\hat{x}",
    "yhat": r"\hat{y}",
    "wbar": r"\bar{w}",
    "Wb": r"\bar{W}",
    "Wt": r"\tilde{W}",
    **{name: f"\\{name}" for name in _GREEK},
}
_SIGNS = {
    "<-": r"\leftarrow ",
    "||": r"\|",
    "...": r"\dots ",
    "~": r"\sim ",
    "{": r"\{",
    "}": r"\}",
    ">=": r"\ge ",
    "<=": r"\le ",
}
_TOKEN = re.compile(
    r"(?P<root>sqrt\((?P<under>[^()]*)\))"
    r"|(?P<name>[A-Za-z]+(?:'s)?)"
    r"|(?P<script>[_^](?:\{[^{}]*\}|-?[A-Za-z0-9]+))"
    r"|(?P<after>(?<=[A-Za-z0-9])[+-](?=[\s,)]|$))"
    r"|(?P<left><(?=[A-Za-z]))|(?P<right>(?<=[A-Za-z])>)"
    r"|(?P<sign><-|\|\||\.\.\.|>=|<=|[~{}])"
    r"|(?P<space>\s+)|(?P<other>.)"
)
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def tex(block: str) -> str:
    """The formula of a docstring, its lines below each other.

    Args:
        block: Its lines, indented or not; empty lines between them separate groups.
    """
    lines = [line.rstrip() for line in block.splitlines()]
    least = min(len(line) - len(line.lstrip()) for line in lines if line)
    rows = []
    for line in lines:
        indented = len(line) - len(line.lstrip()) - least if line else 0
        rows.append(r"\quad " * (indented // 4) + _row(line.strip()))
    return "\\begin{array}{l}\n" + " \\\\\n".join(rows) + "\n\\end{array}"


def _row(line: str) -> str:
    parts = re.split(r"\s{2,}", re.sub(r"\s+(?=(<-|=) )|(?<= =)\s+|(?<=<-)\s+", " ", line))
    return r" \qquad ".join(map(_expression, parts))


def _expression(text: str) -> str:
    """Symbols and words, one after another."""
    out: list[tuple[str, bool]] = []  # TeX, and whether it is a word
    tokens, inside = list(_TOKEN.finditer(text)), False
    for i, token in enumerate(tokens):
        kind, value = token.lastgroup, token[0]
        following = tokens[i + 1].lastgroup if i + 1 < len(tokens) else ""
        if kind in ("root", "under"):
            out.append((rf"\sqrt{{{_expression(token['under'])}}}", False))
        elif kind == "name" and value in _SYMBOLS:
            out.append((_SYMBOLS[value] + " ", False))
        elif kind == "name" and (len(value) > 1 or _article(tokens, i)):
            out.append((rf"\mathrm{{{value}}}" if following == "script" else value, following != "script"))
        elif kind == "script":
            inner = value[1:].strip("{}")
            out.append((f"{value[0]}{{{_expression(inner) if len(inner) > 2 else inner}}}", False))
        elif kind == "after":
            out.append((f"^{{{value}}}", False))
        elif kind in ("left", "right"):
            out.append((r"\langle " if kind == "left" else r"\rangle ", False))
        elif value == "|":
            inside = not inside
            out.append((r"\left|" if inside else r"\right|", False))
        else:
            out.append((_SIGNS.get(value, value), False))
    return _joined(out)


def _article(tokens: list[re.Match[str]], i: int) -> bool:
    """Whether a single letter is the English article: an "a" before a word."""
    after = next((one for one in tokens[i + 1 :] if one.lastgroup != "space"), None)
    spaced = i + 1 < len(tokens) and tokens[i + 1].lastgroup == "space"
    return tokens[i][0] == "a" and spaced and after is not None and len(after[0]) > 1 and after[0] not in _SYMBOLS


def _joined(parts: list[tuple[str, bool]]) -> str:
    """Neighbouring words as one text, with the spaces around them."""
    found, words = "", ""
    for i, (part, word) in enumerate(parts):
        if word:
            words += part
        elif part.isspace() and (words or (i + 1 < len(parts) and parts[i + 1][1])):
            words += " "
        else:
            found, words = found + _text(words) + part, ""
    return found + _text(words)


def _text(words: str) -> str:
    return rf"\text{{{words}}}" if words.strip() else words


def mathml(page: str) -> str:
    """A page of HTML whose formulas, as arithmatex leaves them, are MathML.

    Args:
        page: The HTML.
    """
    from latex2mathml.converter import convert  # of the extra "docs", which only the site needs

    page = _INLINE.sub(lambda found: convert(html.unescape(found[1])), page)
    return _BLOCK.sub(
        lambda found: f'<div class="formula">{convert(html.unescape(found[1]), display="block")}</div>', page
    )
