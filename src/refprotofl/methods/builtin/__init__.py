"""The methods that come with the package: a folder each.

A folder's `__init__` declares the method: options, parts, cost, notes; the code beside it is imported when a run needs
it. A folder added here is found by itself.
"""
