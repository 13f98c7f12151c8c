"""The certificate: everything claimed about a strategy, derived again from what is shipped.

Privacy hangs on `exact`, which works in whole numbers. Nothing here imports the search.
"""
