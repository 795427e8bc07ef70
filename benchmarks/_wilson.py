"""The interval of a proportion, and how large a rate can be when nothing was seen."""

Z = 1.959963984540054


def wilson(found: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of `found` / `of`; (0, 1) when `of` is 0.

    >>> [round(bound, 2) for bound in wilson(41, 41)]
    [0.91, 1.0]
    """
    if not 0 <= found <= of:
        raise ValueError(f"{found} of {of} is no proportion.")
    if of == 0:
        return 0.0, 1.0
    share, square = found / of, Z * Z
    middle = share + square / (2 * of)
    spread = Z * (share * (1 - share) / of + square / (4 * of * of)) ** 0.5
    low, high = (middle - spread) / (1 + square / of), (middle + spread) / (1 + square / of)
    return (0.0 if found == 0 else low), (1.0 if found == of else high)  # exact, whatever rounding says


def per_million(alarms: int, checks: int) -> tuple[float, float]:
    """Alarms per million checks, and its 95 % upper bound (the rule of three when there were none)."""
    if checks == 0:
        return 0.0, float("inf")
    upper = 3.0 / checks if alarms == 0 else wilson(min(alarms, checks), checks)[1]
    return 1e6 * alarms / checks, 1e6 * upper
