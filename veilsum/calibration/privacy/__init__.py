"""Differential privacy for sums of statistics: noise, guarantees, cost, and heads from noisy sums.

>>> mechanism = Mechanism(ffc_release(64, 10), rows=1, mu=gdp_mu(1, 1e-5), members=50, survivors_min=32, colluders=12)
>>> mechanism.add_noise(vector, os.urandom)                               # each member, before it masks
>>> solve_noisy(V, U, mechanism.deviation("V", survivors)).weights       # the coordinator, from the sum
"""
