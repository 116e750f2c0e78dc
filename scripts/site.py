#!/usr/bin/env python3
"""Builds the documentation site in target/site/html from the documents as they are, and checks its links.

mdBook needs a SUMMARY.md. It is generated from docs/README.md, whose sections list every page except the decisions, so
that there is only one index. Exit status 1: a link leads nowhere, or a page is not in the index.
"""
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = ROOT / "target" / "site"
SOURCE = SITE / "src"
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE"]
FOLDERS = ["docs", "scenarios", "bench/results", "packaging", "python/notebooks"]
BOOK = """[book]
title = "netlathe"
language = "en"
[build]
build-dir = "html"
[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
smart-punctuation = false
"""


def stage():
    """Copies the documents and the files that they link to, with the same paths as in the repository."""
    shutil.rmtree(SITE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for page in PAGES:
        shutil.copy(ROOT / page, SOURCE / page)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, SOURCE / folder)
    (SITE / "book.toml").write_text(BOOK)


def title(page):
    first = next(line for line in page.read_text().splitlines() if line.startswith("#"))
    return re.sub(r"[`\[\]]", "", first.lstrip("# "))


def summary():
    """Returns the index of docs/README.md in the form of mdBook, followed by the decisions."""
    lines = ["# Summary", "", "[netlathe](README.md)", "[All documents](docs/README.md)"]
    listed = []
    for line in (SOURCE / "docs/README.md").read_text().splitlines():
        if section := re.match(r"\*\*([\w ]+)\*\*", line):
            lines += ["", f"# {section[1]}", ""]
        for name, target in re.findall(r"\[([^\]]+)\]\(([\w/.-]+\.md)\)", line):
            page = pathlib.Path("docs") / target
            if page not in listed:
                listed.append(page)
                lines.append(f"- [{name[0].upper() + name[1:]}]({page})")
    decisions = sorted((SOURCE / "docs/adr").glob("[0-9]*.md"))
    for page in decisions:
        lines.append(f"  - [{title(page)}]({page.relative_to(SOURCE)})")
    results = sorted(page.relative_to(SOURCE) for page in (SOURCE / "bench").rglob("*.md"))
    for heading, pages in {"Measurements": results, "Project": PAGES[1:5]}.items():
        lines += ["", f"# {heading}", ""] + [f"- [{title(SOURCE / page)}]({page})" for page in pages]
    (SOURCE / "SUMMARY.md").write_text("\n".join(lines) + "\n")
    every = {page.relative_to(SOURCE) for page in (SOURCE / "docs").rglob("*.md")}
    known = {*listed, *(page.relative_to(SOURCE) for page in decisions), pathlib.Path("docs/README.md")}
    return [f"{page} is not in docs/README.md" for page in sorted(every - known)]


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.append(attributes[name])


def dead_links():
    pages = {path: Page(path) for path in (SITE / "html").rglob("*.html") if path.name not in ("print.html", "404.html", "toc.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists() and target.name == "README.html":
                target = target.with_name("index.html")
            missing = not target.exists() or (parts.fragment and target in pages and parts.fragment not in pages[target].anchors)
            if missing:
                dead.append(f"{path.relative_to(SITE / 'html')}: {link} leads nowhere")
    return dead


def main():
    if not shutil.which("mdbook"):
        sys.exit("site: mdbook is missing: cargo install mdbook --locked")
    stage()
    wrong = summary()
    subprocess.run(["mdbook", "build", str(SITE)], check=True)
    wrong += dead_links()
    print("\n".join(wrong) or f"site: {SITE.relative_to(ROOT)}/html/index.html, every link leads somewhere")
    sys.exit(bool(wrong))


main()
