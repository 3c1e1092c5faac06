"""The demo: real digits, real processes, real signals, and a comparison with the same fit in the clear.

learning ──▶ consortium ──▶ comparison ──▶ facts ──▶ table, summary.json, report.html
trains,      a coordinator   the masked     plain data that the three
writes       and a process   head beside    outputs are made of
features     a member; one   the plain one
and          mended after a
canaries     rehearsal, two
             killed in the run
"""
