"""Who may do what at the coordinator (docs/access.md).

a route ──▶ its guard ──▶ gate: who is it? ──▶ limits: how often? ──▶ the body, in time and within its size ──▶ the route's own work
"""
