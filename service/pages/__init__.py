"""The dashboard: pages for people, rendered here, readable without scripts.

routes ── data ──▶ reading ──▶ templates
   └──── viewer ──▶ session

They show what the REST routes show to the same caller. A script updates a round's page (server-sent events), counts down, copies ids and
draws charts; without it the page shows the state at the time of the request.
"""
