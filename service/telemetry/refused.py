"""How often each round refused something since this process started, by cause: what its page shows."""

from collections import Counter, OrderedDict
from collections.abc import Mapping

_MOST = 1024


class Refused:
    """Counts by round, of the rounds that refused last."""

    def __init__(self, most: int = _MOST) -> None:
        self._counts: OrderedDict[str, Counter[str]] = OrderedDict()
        self._most = most

    def add(self, round_id: str, cause: str) -> None:
        """One more refusal in a round that exists."""
        self._counts.setdefault(round_id, Counter())[cause] += 1
        self._counts.move_to_end(round_id)
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def of(self, round_id: str) -> Mapping[str, int]:
        """A round's counts, the most frequent first."""
        return dict(self._counts.get(round_id, Counter()).most_common())
