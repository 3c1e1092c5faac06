"""What can go wrong in a demo, apart from what the packages below it raise.

Exception
└── DemoError          the demo can't go on; says why and what to do
    └── ChildFailed    a process that it started ended as it should not have; shows the end of its log
"""


class DemoError(Exception):
    """The demo can't go on."""


class ChildFailed(DemoError):  # noqa: N818 - says what happened
    """A child process ended as it should not have."""
