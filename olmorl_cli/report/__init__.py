"""A run's rollouts as one self-contained HTML page: `data` and `details` gather, `charts` and `story` say, `page` writes.

Only `charts` knows Altair.
"""
