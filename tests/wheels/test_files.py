"""The site as `make release` leaves it in a file, unpacked where no checkout is near."""

import json
import os
import re
import tarfile
from pathlib import Path

import pytest

import asd

SITE = Path(os.environ.get("WHEELS_FOLDER", "dist"), f"mindspore-asd-{asd.__version__}-docs.tgz")
pytestmark = pytest.mark.skipif(not SITE.is_file(), reason="`make release` says in WHEELS_FOLDER where it is")


@pytest.mark.parametrize(("language", "word"), [("", "isolated"), ("zh", "隔离")])
def test_pages_are_found_by_a_search_without_a_server(language, word, tmp_path):
    with tarfile.open(SITE) as packed:
        packed.extractall(tmp_path, filter="data")
    script = (tmp_path / "search" / "search_index.js").read_text()
    found = json.loads(re.fullmatch(r"var __index = (.*)", script.strip(), re.DOTALL)[1])["docs"]
    places = {page["location"] for page in found if word in page["text"].replace("\u200b", "")}
    assert [place for place in places if place.startswith("zh/") is bool(language)]
    page = (tmp_path / language / "index.html").read_text()
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert [name for name in scripts if name.endswith("iframe-worker.js")]
    assert [name for name in scripts if ":" in name] == []  # nothing is fetched
