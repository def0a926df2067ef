"""The pseudocode's tokens, and reading them one after the other."""

from __future__ import annotations

import re
from typing import Any

from pseudocode_values import Int, NotCoveredError

TOKEN = re.compile(
    r"\s*(?:(\d+'[UIFB])|(\d+)'(0x[\da-fA-F]+|\d+)U?|(0x[\da-fA-F]+(?:ULL|LL|U)?)|(\d+\.\d+F?|\d+F)"
    r"|(\d+)(ULL|LL|U)?|([A-Za-z_]\w*)|(\*\*|<<|>>|<>|<=|>=|==|!=|&&|\|\||\+=|-=|\|=|[-+*/%<>=!~&|^?:()\[\]{},;.]))"
)


def tokens_of(text: str) -> list[tuple[str, Any]]:
    text = re.sub(r"//[^\n]*", "", text)
    out: list[tuple[str, Any]] = []
    at = 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if not match:
            raise NotCoveredError(text[at : at + 20])
        cast, width, sized, hexadecimal, real, decimal, suffix, name, sign = match.groups()
        if cast:
            out.append(("cast", cast))
        elif width:
            out.append(("number", Int(int(sized, 0), int(width), False)))
        elif hexadecimal:
            digits = re.sub(r"[UL]+$", "", hexadecimal)
            out.append(("number", Int(int(digits, 16), 64 if "LL" in hexadecimal else 32, "U" not in hexadecimal)))
        elif real:
            out.append(("number", float(real.rstrip("F"))))
        elif decimal:
            out.append(
                ("number", Int(int(decimal), 64 if suffix and "LL" in suffix else 32, not (suffix and "U" in suffix)))
            )
        else:
            out.append(("name", name) if name else ("sign", sign))
        at = match.end()
    return [*out, ("end", None)]


class Reader:
    """Stands at a token of a text."""

    tokens: list[tuple[str, Any]]
    at: int

    def peek(self, *texts: str) -> bool:
        return self.tokens[self.at][0] in ("sign", "name") and self.tokens[self.at][1] in texts

    def accept(self, *texts: str) -> bool:
        if self.peek(*texts):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise NotCoveredError(f"expected {text}, got {self.tokens[self.at]}")

    def name(self) -> str:
        kind, text = self.tokens[self.at]
        if kind != "name":
            raise NotCoveredError(str((kind, text)))
        self.at += 1
        return text
