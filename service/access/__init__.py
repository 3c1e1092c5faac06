"""Authentication, authorisation and limits (docs/access.md).

a route ──▶ guards and gate: who asks, and may it? ──▶ charging: how often? ──▶ the body, in time and within its size ──▶ the route's own work ──▶ recording
"""
