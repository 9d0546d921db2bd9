"""The regions of a grid file: parts of the space of points, made by halving it along one coordinate after the other.

A box over d dimensions is a point of 2 d coordinates: the low and high side of the first dimension, of the second, and
so on. Halvings take the coordinates in turn, each time by the next bit of its code; a coordinate whose bits are used up
is skipped. So the number of halvings and the bits that they fix determine a region (Wang and Kitsuregawa, section 2.2;
Whang and Krishnamurthy, The multilevel grid file, DASFAA 1991, [23] and [24] there).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.jit import jit


class Turns(NamedTuple):
    """The order of the t halvings of c = 2 d coordinates, round by round. The last element stands for a halving after
    all t, so that t can be an index, too.

    bits        [c] int32, the number of bits of each coordinate's codes
    coordinate  [t + 1] int32, the coordinate that is halved; ascending within a round
    round       [t + 1] int32, how often the coordinates that have bits left have been halved before
    """

    bits: np.ndarray
    coordinate: np.ndarray
    round: np.ndarray


def make_turns(last: np.ndarray) -> Turns:
    """The turns over dimensions with these last codes [d] int32."""
    bits = np.repeat(np.array([code.bit_length() for code in last.tolist()], np.int32), 2)
    rounds = int(bits.max(initial=0))
    in_round, coordinate = np.nonzero(np.arange(rounds)[:, None] < bits)
    return Turns(bits, np.append(coordinate, 0).astype(np.int32), np.append(in_round, rounds).astype(np.int32))


@jit
def most_halvings(turns: Turns) -> int:
    """The number of halvings after which a region is a single point."""
    return len(turns.round) - 1


@jit
def is_upper(point: np.ndarray, halvings: int, turns: Turns) -> int:
    """Returns in which half of its region a point [c] is, 0 or 1: the region results from `halvings` halvings, and the
    next one divides it."""
    i = turns.coordinate[halvings]
    return point[i] >> (turns.bits[i] - 1 - turns.round[halvings]) & 1


@jit
def _free_bits(i: int, halvings: int, turns: Turns) -> int:
    """Returns how many of a coordinate's low bits are not yet fixed after so many halvings."""
    fixed = min(turns.bits[i], turns.round[halvings])
    if turns.bits[i] > turns.round[halvings] and i < turns.coordinate[halvings]:
        fixed += 1
    return turns.bits[i] - fixed


@jit
def set_region(bounds: np.ndarray, point: np.ndarray, halvings: int, turns: Turns) -> None:
    """Writes the least low sides and the greatest high sides in a region to `bounds` [c]; the region is the one that
    contains `point` [c] after so many halvings. `bounds` may be `point`."""
    for i in range(len(bounds)):
        free = _free_bits(i, halvings, turns)
        side = np.int64(point[i]) >> free << free
        if i % 2 == 1:
            side += (np.int64(1) << free) - 1
        bounds[i] = side


@jit
def same_region(a: np.ndarray, b: np.ndarray, halvings: int, turns: Turns) -> bool:
    """Whether two points [c], or the bounds of two regions, are in the same region after so many halvings."""
    i = 0
    while i < len(a) and (np.int64(a[i]) ^ b[i]) >> _free_bits(i, halvings, turns) == 0:
        i += 1
    return i == len(a)


@jit
def first_difference(a: np.ndarray, b: np.ndarray, halvings: int, most: int, turns: Turns) -> int:
    """Returns the number, counted from 0, of the first halving that separates two points, beginning with number
    `halvings`; `most` if none before it does."""
    while halvings < most and is_upper(a, halvings, turns) == is_upper(b, halvings, turns):
        halvings += 1
    return halvings
