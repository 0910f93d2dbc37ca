"""Programs of the documentation that need PyTorch: each prints what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest
import site_pages
import snippets


@pytest.mark.parametrize("page", site_pages.run_by(site_pages.WITH_TORCH), ids=lambda page: page.name)
def test_the_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    # Runs of others may lie where the page puts its own.
    markdown = page.read_text().replace("/tmp/runs", str(tmp_path / "runs"))
    found = snippets.failures(markdown, tmp_path, runs=lambda block: site_pages.who_runs(page, block) == site_pages.WITH_TORCH)
    assert not found, "\n\n".join(found)
