"""The C++ library through ctypes; its sources stand by topic in the folders.

May import: nothing of `asd.operators`.
"""
