"""Authentication, authorisation and limits (docs/access.md).

a route ──▶ its guard ──▶ gate: authentication ──▶ limits: how often? ──▶ the body, in time and within its size ──▶ the route's own work
"""
