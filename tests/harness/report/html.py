"""The elements of a page of HTML."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "input", "link", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The words of this element and of its descendants."""
        return " ".join(" ".join(self.texts).split())

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def all(self, tag: str, *classes: str) -> list["Element"]:
        """The descendants with this tag and these classes, in order."""
        found = []
        for child in self.children:
            found += [child] if child.tag == tag and set(classes) <= set(child.classes) else []
            found += child.all(tag, *classes)
        return found


class Builder(HTMLParser):
    """Builds the tree of a page; an end tag that does not match is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        closed = self.open.pop()
        assert closed.tag == tag, f"</{tag}> ends <{closed.tag}>"

    def handle_data(self, data):
        for element in self.open:
            element.texts.append(data)


def parsed(page: str) -> Element:
    builder = Builder()
    builder.feed(page)
    builder.close()
    [root] = builder.open
    return root
