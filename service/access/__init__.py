"""Who may do what at the coordinator (docs/access.md).

a route ──▶ its guard ──▶ gate: who is it? ──▶ the body, within its limits ──▶ the route's own work
"""
