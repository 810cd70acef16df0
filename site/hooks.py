"""What MkDocs does not do by itself: see each function."""

import os
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "https://github.com/weirmq/weir"

FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^( *)([-*]|\d+\.)( +)\S")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"(`+)(?:.*?)\1")


def on_config(config):
    """Puts the decisions into the navigation: each is a file, and there will be more."""
    folder = Path(config["docs_dir"], "decisions")
    pages = sorted(f"decisions/{p.name}" for p in folder.glob("*.md"))
    for entry in config["nav"]:
        if "Project" in entry:
            entry["Project"].append({"Decisions": pages})
    return config


def on_page_markdown(markdown, page, config, files):
    """Appends the help of the commands, makes links out of docs links to the source, and
    writes lists as Python-Markdown reads them."""
    if page.file.src_uri == "COMMANDS.md":
        markdown += "\n" + Path(os.environ["SITE_COMMANDS"]).read_text()
    lines, fenced = [], False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        lines.append(line if fenced else outside(line, page))
    return lists(lines)


def outside(line, page):
    """Points links to what is not a page at the repository. What is not there stays as it
    is, and MkDocs complains."""
    code = [m.span() for m in CODE.finditer(line)]

    def target(m):
        link = m[2]
        if any(a <= m.start() < b for a, b in code) or re.match(r"[a-z]+:|#|/", link):
            return m[0]
        path, _, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), path))
        there = ROOT / path
        if not there.exists() or there.is_file() and path.startswith("docs/"):
            return m[0]
        kind = "tree" if there.is_dir() else "blob"
        return f"{m[1]}{SOURCE}/{kind}/main/{path}{'#' + anchor if anchor else ''}{m[3]}"

    return LINK.sub(target, line)


def lists(lines):
    """GitHub takes what is indented as far as the text of an item for a part of it;
    Python-Markdown wants four spaces for each level, and an empty line in front of a list."""
    out, levels, fenced, shift = [], [], None, 0
    for line in lines:
        if fenced is not None:
            out.append(" " * shift + line if line.strip() else line)
            if re.match(r"^\s*(```|~~~)\s*$", line):
                fenced = None
            continue
        if not line.strip():
            out.append(line)
            continue
        indent = len(line) - len(line.lstrip(" "))
        item = ITEM.match(line)
        while levels and indent < levels[-1]:
            # A line of a paragraph that goes on without its indent ends no list.
            if not item and out and out[-1].strip() and not line.startswith(("#", "|", "```")):
                break
            levels.pop()
        if item:
            if out and out[-1].strip() and not levels and not ITEM.match(out[-1]):
                out.append("")
            out.append(" " * 4 * len(levels) + line[indent:])
            levels.append(indent + len(item[2]) + len(item[3]))
            continue
        if levels and indent >= levels[-1]:
            shift = 4 * len(levels) - levels[-1]
            line = " " * shift + line
        else:
            shift = 0
        if FENCE.match(line):
            fenced = True
        out.append(line)
    return "\n".join(out)
