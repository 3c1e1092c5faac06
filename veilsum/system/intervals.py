"""How long the SDK, the commands, the demo and the pages wait: polls, retries and timeouts, in seconds."""

# Polls

POLL_MIN_S = 1.0
"""Minimum time between two polls without news: some proxies answer long polls at once, and a coordinator may show endless changes."""
UNPACED_CHANGES = 40
"""How many changes in a row are followed at once, which are those of a round of a dozen members; later ones as if they came every
`POLL_MIN_S`."""
LONG_POLL_S = 30.0
"""How long a client asks the coordinator to hold a poll, and how long it holds one by default."""
RUNS_POLL_S = 30.0
"""Interval of looking for runs that take cards, while a round keeps a member waiting."""
REHEARSAL_POLL_S = 0.25
"""Interval of looking whether every site has come to a rehearsal or said what keeps it away."""
STUDIES_POLL_S = 10.0
"""Interval of looking for a study to approve."""
PAGE_POLL_S = {"enrolment": 3, "lists": 5, "others": 10, "unstreamed": 15, "members": 30}
"""Intervals at which pages refresh; "unstreamed" is a round whose stream of events was refused."""

# Retries

MEMBER_RETRY_S = 900.0
"""How long a member, or a command that waits for members, retries while the coordinator is out of reach."""
COMMAND_RETRY_S = 30.0
"""How long other commands retry."""
RETRY_FIRST_S, RETRY_LONGEST_S = 0.5, 30.0
"""The first and the longest pause between two tries of a request."""
RUN_RETRY_S = 5.0
"""Pause of `veilsum operator run` after a failure, at first."""
RUN_RETRY_LONGEST_S = 120.0
"""The longest such pause."""
PRESENCE_MIN_S = 120.0
"""Such a run opens a step only if enough members made a request within half of their study's time to answer, and at least this time."""
WORKER_RESTART_S = 1.0
"""Pause before a dead worker is replaced, so that a crash loop does not keep a core busy."""

# Ends of processes

SHUTDOWN_TIMEOUT_S = 5
"""How long requests, and the demo's processes, have to finish after SIGTERM; open long polls end at once."""
DEMO_START_S, DEMO_FINISH_S = 60.0, 120.0
"""How long the demo's coordinator may take to start, and its members to end after their round."""


def compute_presence_s(answer_window_s: float) -> float:
    """Return within how many seconds a member must have made a request to count as present for a study with this `windows.answer`.

    A member that connects once in half of the window still answers in time.
    """
    return max(PRESENCE_MIN_S, answer_window_s / 2)


class ChangePacer:
    """Tells which changes are followed at once, by `UNPACED_CHANGES`."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def follow_at_once(self, asked_s: float) -> bool:
        """Count a poll that was sent at this monotonic time. Returns whether a change that it brings is followed at once."""
        self._due_s = max(self._due_s, asked_s - UNPACED_CHANGES * POLL_MIN_S) + POLL_MIN_S
        return self._due_s <= asked_s
