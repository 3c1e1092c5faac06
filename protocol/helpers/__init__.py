"""The secure sum for members that speak once: four mask helpers take the masks off (specified in docs/helpers.md).

Its trust statement is another than that of the main mode: no two helpers may collude with each other and the coordinator.
"""
