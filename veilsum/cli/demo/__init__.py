"""The demo: real digits, real processes, real signals, and a comparison with the same fit in the clear.

learning ──▶ consortium ──▶ comparison ──▶ facts ──▶ table, summary.json, report.html
trains,      a coordinator   the masked     plain data that the three
writes       and a process   head beside    outputs are made of
features     a member; two   the plain one
             of them killed
"""
