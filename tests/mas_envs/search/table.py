"""A retriever that looks queries up in a table: real searches would make who finds what hard to say in a test."""

from collections.abc import Mapping, Sequence

from mas_envs.retrieval.protocol import Passage

__all__ = ["TableRetriever", "passage"]


def passage(title: str, text: str = "", id: str = "") -> Passage:
    return Passage(id or title, title, text)


class TableRetriever:
    """Gives what its table says for a query; an exception in the table is raised; remembers what it was asked."""

    def __init__(self, table: Mapping[str, Sequence[Passage] | Exception] | None = None) -> None:
        self.table = dict(table or {})
        self.asked: list[tuple[str, int]] = []

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        self.asked += [(query, k) for query in queries]
        return [self._found(query) for query in queries]

    def _found(self, query: str) -> list[Passage]:
        found = self.table.get(query, ())
        if isinstance(found, Exception):
            raise found
        return list(found)
