"""The cost of interval indexes by the CEI paper's analysis: Tables 1 and 2, and the lemmas behind them (section 4).

Intervals [p, p + w) have starts uniform over one segment and widths uniform in 1..W; logarithms are base 2.
"""

from __future__ import annotations

from rules_index.engines.cei.constructs import Kind

# Symbols are the paper's, capitals included: L segment length, W greatest width, r domain, N constructs, n intervals,
# mu their mean number of pieces, beta = floor(W / L).
# ruff: noqa: N803


def constructs(kind: Kind, r: int, L: int) -> int:
    """N, the constructs defined over a domain of r values (Table 1)."""
    return {"ui": r, "lci": r * (1 + log(L)), "cei": 2 * r - r // L}[kind]


def covering_constructs(kind: Kind, L: int) -> int:
    """C, the constructs that contain a value (Table 1)."""
    return {"ui": 1, "lci": 2 * L - 1, "cei": 1 + log(L)}[kind]


def storage_bytes(N: int, n: int, mu: float) -> float:
    """4N + 8 n mu: a pointer for every construct, an id and a pointer for every piece (section 4)."""
    return 4 * N + 8 * n * mu


def mu_bounds(kind: Kind, L: int, W: int) -> tuple[float, float]:
    """The lower and upper bound of mu (Table 2); equal for UI. Raises `ValueError` if W < L, which Table 2
    excludes."""
    if kind == "ui":
        return (1 + W) / 2, (1 + W) / 2
    if W < L:
        raise ValueError(f"Table 2 holds for W >= L only, not for W = {W} and L = {L}")
    beta = W // L
    if kind == "lci":
        return lci_total(beta, L) / W, lci_total(beta + 1, L) / W
    return cei_total(beta, L) / (W * L), cei_total(beta + 1, L) / (W * L)


def cei_total(beta: int, L: int) -> float:
    """Pieces of all intervals that start in one segment and have widths in (0, beta L] (theorem 2), beta >= 1."""
    k = log(L)
    return beta * L * L * k + (beta * beta - 2 * beta - 2) * L * L / 2 + 1.5 * L * k + 1.5 * beta * L + 1


def cei_total_of_multiple(i: int, L: int) -> float:
    """T(iL, (i + 1) L]: pieces of all intervals that start in one segment, with widths in this range; i >= 1 (lemmas 5
    and 6)."""
    return L * L / 2 + 1.5 * L + L * L * log(L) + (i - 1) * L * L


def cei_total_of_fraction(j: int, L: int) -> float:
    """T(L / 2^j, L / 2^(j - 1)], for 1 <= j <= log L (lemma 7)."""
    return L * L / 2 ** (j + 1) + 1.5 * L + L * L * (log(L) - j) / 2**j - 2.0 ** (j - 1)


def lci_total(beta: int, L: int) -> float:
    """Pieces of the intervals of widths in (0, beta L] from one start (theorem 3)."""
    return beta + beta * L * log(L) / 2 + beta * (beta - 1) * L / 2


def lci_total_of_multiple(i: int, L: int) -> float:
    """T'(iL, (i + 1) L]: pieces of the intervals from one start, with widths in this range; i >= 0 (lemmas 8 and 9)."""
    return 1 + L * log(L) / 2 + i * L


def log(L: int) -> int:
    """k = log L. Raises `ValueError` if L is not a power of two."""
    if L < 1 or L & (L - 1):
        raise ValueError(f"a segment length is a power of two, not {L}")
    return L.bit_length() - 1
