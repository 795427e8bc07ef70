"""Compares two runs.

Reading order:

    formats/dump_folder   a dump as it lies on disk
    matching              which call of one run belongs to which of the other
    comparison            every call with its partner, row by row
    first_difference      where the runs part first, and whether bits name an operator
"""
