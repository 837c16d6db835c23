"""Pages link to files beside docs/, which are no pages: in the site these links lead to the repository."""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_OUTSIDE = re.compile(r"\]\((?P<path>(?:\.\./)+[^)#\s]*)(?P<anchor>#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """``markdown`` with every link that leaves the documents' folder turned into one to the repository.

    Raises:
        PluginError: such a link leads to nothing.
    """
    root = Path(config["config_file_path"]).resolve().parent
    documents = Path(config["docs_dir"]).resolve()
    folder = (documents / page.file.src_uri).parent

    def in_repository(link: re.Match[str]) -> str:
        target = (folder / link["path"]).resolve()
        if target.is_relative_to(documents):
            return link[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri} links to {link['path']}, which does not exist")
        kind = "tree" if target.is_dir() else "blob"
        address = f"{config['extra']['repository']}/{kind}/main/{target.relative_to(root).as_posix()}"
        return f"]({address}{link['anchor'] or ''})"

    return _OUTSIDE.sub(in_repository, markdown)
