"""Pieces of HTML that every section is made of."""

import html

from olmorl_cli.errors import visible, without_secrets


def text(value: object) -> str:
    """Anything as text of the page: no markup, no control characters, no secrets of URIs."""
    return html.escape(visible(without_secrets(str(value))))


def section(title: str, *parts: str) -> str:
    """A part of the page under its own heading."""
    return f"<section>\n<h2>{title}</h2>\n{''.join(parts)}</section>"
