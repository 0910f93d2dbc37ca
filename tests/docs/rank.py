"""Ranks the pages of the site for queries, as the site's own search does: run by the interpreter that has lunr.

`rank.py INDEX` reads a JSON list of queries and prints, for each, the pages in their order.

The theme's search asks lunr for sections, with the fields' weights that stand in the index. It counts a section that is a whole
page, and one that has every word, once more; a page stands where its best section does.
"""

from __future__ import annotations

import json
import re
import sys

from lunr import lunr


def main() -> None:
    with open(sys.argv[1]) as file:
        index = json.load(file)
    separator = re.compile(index["config"]["separator"])
    fields = index["config"]["fields"]
    sections = []
    for document in index["docs"]:
        # Lunr parts words at spaces and hyphens alone.
        words = {field: separator.sub(" ", re.sub(r"<[^>]*>", " ", document.get(field) or "")) for field in ("title", "text")}
        sections.append(({"location": document["location"], **words}, {"boost": document.get("boost", 1)}))
    weights = [{"field_name": field, "boost": fields[field]["boost"]} for field in ("title", "text")]
    searched = lunr(ref="location", fields=weights, documents=sections)
    print(json.dumps([pages(searched, separator.sub(" ", query).strip()) for query in json.load(sys.stdin)]))


def pages(searched: object, query: str) -> list[str]:
    """The pages that a query finds, the best first."""
    found = searched.search(query)  # type: ignore[attr-defined]
    terms = {term for result in found for term in result["match_data"].metadata}
    best: dict[str, float] = {}
    for result in found:
        location = result["ref"]
        has_all = terms <= set(result["match_data"].metadata)
        score = result["score"] * (1 + ("#" not in location) + has_all)
        page = location.partition("#")[0] or "index.html"
        best[page] = max(best.get(page, 0.0), score)
    return sorted(best, key=lambda page: -best[page])


main()
