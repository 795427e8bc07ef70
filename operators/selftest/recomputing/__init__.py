"""What computes again lets pass what is right and finds what is wrong; and what is kept of a wrong call.

products ── products, norms and means
calls ── all other calls, their traces, and outputs that come twice

May import: what `asd.operators.selftest` may.
"""
