"""The dashboard: pages for people, rendered here, readable without scripts.

routes ── what is there to see ──▶ reading, grid ──▶ templates
   └──── the viewer ──▶ session

They show what the REST routes show and nothing more, in words. A script keeps a round's page up to date (server-sent events), counts
down, copies and draws; without it a page is the same, as of when it was asked for.
"""
