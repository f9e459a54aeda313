"""Reading a report page back, and what every page must obey."""

import base64
import hashlib
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Page(HTMLParser):
    """Every tag with its attributes, the text outside script and style, and the scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.words, self.scripts, self.open, self.unbalanced = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)

    def with_class(self, name):
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]

    def cases(self):
        return [attrs for tag, attrs in self.tags if tag == "article"]


def check_safe(page):
    """No script but ours, no event attribute, nothing loaded from anywhere."""
    assert [tag for tag, _ in page.tags if tag == "script"] == ["script"]
    (script,) = page.scripts
    policy = next(attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert "default-src 'none'" in policy
    allowed = {"html", "head", "body", "meta", "title", "style", "script", "header", "main", "footer", "nav", "section"}
    allowed |= {"article", "h1", "h2", "h3", "h4", "p", "a", "b", "strong", "span", "code", "pre", "sup", "br", "ul"}
    allowed |= {"li", "dl", "dt", "dd", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "details"}
    allowed |= {"summary", "figure", "figcaption", "form", "label", "select", "option", "button", "output", "svg", "g"}
    allowed |= {"input", "rect", "line", "polyline", "circle", "text", "defs", "image", "use"}
    for tag, attrs in page.tags:
        assert tag in allowed
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("src", "href", "action"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/png;base64,", "data:image/jpeg;base64,"))
    assert page.unbalanced == []
    assert page.open == []
