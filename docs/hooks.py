"""MkDocs hooks: READMEs of other folders become pages of the site, where links to files work.

A linked source file becomes a page with its text, so that the site needs no server of a repository.
The comment ``<!-- api: PACKAGE -->`` of a page becomes the reference of all names that the package
imports.
"""

import ast
import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from benchmarks.render import RESULTS, result_table

ROOT = Path(__file__).parents[1]
DOCS = "docs"
RECORDS = f"{DOCS}/records/"
"""History: no part of the navigation or the search; a linked record is shown as its text, like a
source file."""
NAMED = {
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "reference/security.md",
    "benchmarks/README.md": "reference/benchmarks.md",
    "components/README.md": "stages/index.md",
    "deploy/README.md": "reference/deploy.md",
    "pipelines/README.md": "reference/pipelines.md",
}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash", ".json": "json"}
API = re.compile(r"^<!-- api: ([\w.]+) -->$", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


def repository_pages() -> dict[str, str]:
    """Return the page of the site for each README outside ``docs``, by its path in the
    repository."""
    stages = (file.relative_to(ROOT) for file in sorted((ROOT / "components").glob("*/README.md")))
    named = {stage.as_posix(): f"stages/{stage.parent.name}.md" for stage in stages}
    return NAMED | named


def source_page(path: str) -> str:
    """Return the page of a source file of the repository."""
    return f"source/{path}.md"


def site_page(path: str) -> str:
    """Return the page of the site for a file of the repository."""
    if path.startswith(f"{DOCS}/") and not path.startswith(RECORDS):
        return path.removeprefix(f"{DOCS}/")
    return repository_pages().get(path) or source_page(path)


def linked_sources() -> list[str]:
    """Return the source files that the pages link to."""
    pages = [
        *(ROOT / DOCS).rglob("*.md"),
        *(ROOT / name for name in repository_pages() if name != "README.md"),
    ]
    found = set()
    for page in pages:
        for target in LINK.findall(page.read_text()):
            path = repository_path(page.relative_to(ROOT).as_posix(), target.partition("#")[0])
            if path is not None and site_page(path) == source_page(path):
                found.add(path)
    return sorted(found)


def repository_path(page: str, target: str) -> str | None:
    """Return the path in the repository of a relative link; None for addresses, anchors and missing
    files."""
    if not target or "://" in target or target.startswith("mailto:"):
        return None
    path = os.path.normpath(PurePosixPath(page).parent / target)
    return path if (ROOT / path).is_file() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the READMEs and the linked source files."""
    for path, uri in repository_pages().items():
        if path != "README.md":
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for path in linked_sources():
        file, language = ROOT / path, LANGUAGES.get(Path(path).suffix, "text")
        shown = (
            result_table(file)
            if file.parent == RESULTS
            else f"`````{language}\n{file.read_text()}`````\n"
        )
        text = f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n{shown}"
        files.append(
            File.generated(
                config, source_page(path), content=text, inclusion=InclusionLevel.NOT_IN_NAV
            )
        )
    return files


def public_names(package: str) -> list[str]:
    """Return the full names of what the ``__init__.py`` of a package imports from below it, in its
    order."""
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith(f"{package}.")]
    return [f"{node.module}.{alias.name}" for node in ours for alias in node.names]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write the reference of packages, and replace links to files of the repository by links to
    their pages."""
    markdown = API.sub(
        lambda found: "\n\n".join(f"::: {name}" for name in public_names(found[1])), markdown
    )
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    origin = {uri: path for path, uri in repository_pages().items() if path != "README.md"}.get(
        uri, f"{DOCS}/{uri}"
    )
    lines, fence = [], ""
    for line in markdown.splitlines():
        mark = re.match(r"\s*(`{3,})", line)
        if mark:
            fence = "" if line.strip() == fence else fence or mark[1]
        lines.append(
            line if fence else LINK.sub(lambda found: site_link(origin, uri, found[1]), line)
        )
    return "\n".join(lines)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the parts of the theme's search apart from other parts, and write empty headers of
    tables as cells."""
    named = output.replace('role="dialog"', 'role="dialog" aria-label="Search pages"')
    named = named.replace(
        'class="md-search__options" aria-label="Search"',
        'class="md-search__options" aria-label="Tools"',
    )
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", named)


def site_link(origin: str, uri: str, target: str) -> str:
    """Return the link on the page ``uri`` that replaces ``target``, a link in the file
    ``origin``."""
    file, _, anchor = target.partition("#")
    path = repository_path(origin, file)
    if path is None:
        return target
    link = os.path.relpath(site_page(path), PurePosixPath(uri).parent)
    return f"{link}#{anchor}" if anchor else link
