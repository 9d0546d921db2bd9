"""Builds all pages of a grid file at once: each is the largest region made by halving whose members fit in a page."""

from __future__ import annotations

import numpy as np

from rules_index.arrays import grown
from rules_index.engines.box_store import BoxStore
from rules_index.engines.grid_file.insertion import add_identical
from rules_index.engines.grid_file.regions import Turns, is_upper, most_halvings, set_region
from rules_index.engines.r_tree.dimensions import Dimensions, all_bounds
from rules_index.engines.r_tree.nodes import Level, Nodes, number_levels, reserve
from rules_index.kernels.jit import jit


def fill_pages(store: BoxStore, dimensions: Dimensions, turns: Turns, page_size: int) -> tuple[Nodes, np.ndarray]:
    """Returns the pages over all boxes of the store, and the number of halvings [pages] of each. Reorders the store's
    boxes by page."""
    slots = store.slots
    points = all_bounds(slots, store.view, dimensions)
    levels: list[Level] = []
    halvings: list[np.ndarray] = []
    while not levels or len(points) > 1 or halvings[-1][0] > 0:
        order, begins, turn = _partition(points, page_size, turns)
        if levels:
            # the entries of a page must be contiguous, and are moved together with their contents
            levels[-1] = Level(*(array[order] for array in levels[-1]))
            halvings[-1] = halvings[-1][order]
        else:
            store.reorder(slots[order])
        points = _regions(points, order, begins, turn, turns)
        levels.append(Level(begins[:-1], np.diff(begins), points))
        halvings.append(turn)
    data = levels[0]
    levels[0] = data._replace(filled=np.minimum(data.filled, page_size))
    nodes = number_levels(levels, store.view, page_size)
    nodes = reserve(nodes, int(((data.filled - 1) // page_size).clip(0).sum()))
    for page in np.flatnonzero(data.filled > page_size).tolist():
        first, end = int(data.first[page]), int(data.first[page] + data.filled[page])
        add_identical(page, np.arange(first + page_size, end), nodes, store.view)
    return nodes, grown(np.concatenate(halvings), len(nodes.level))


@jit
def _partition(points: np.ndarray, page_size: int, turns: Turns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divides points [n, c], or regions given by one of their points, among pages of at most `page_size`.

    Returns an order [n] of the points, where each page begins in it [pages + 1], and the number of halvings [pages]
    int32 of each page. Only points that no halving separates make a page larger than `page_size`.
    """
    most = most_halvings(turns)
    order = np.arange(len(points))
    begins = np.zeros(len(points) + 2, np.int64)
    halvings = np.zeros(len(points) + 1, np.int32)
    stack = np.empty((most + 2, 3), np.int64)
    stack[0] = np.array([0, len(points), 0])
    waiting, pages = 1, 0
    while waiting > 0:
        waiting -= 1
        begin, end, turn = stack[waiting]
        middle = end
        while end - begin > page_size and turn < most and not begin < middle < end:
            middle = _halve(order, begin, end, points, turn, turns)
            turn += 1
        if begin < middle < end:
            stack[waiting] = np.array([middle, end, turn])
            stack[waiting + 1] = np.array([begin, middle, turn])
            waiting += 2
        else:
            halvings[pages] = turn
            pages += 1
            begins[pages] = end
    return order, begins[: pages + 1].copy(), halvings[:pages].copy()


@jit
def _halve(order: np.ndarray, begin: int, end: int, points: np.ndarray, turn: int, turns: Turns) -> int:
    """Moves the points of order[begin:end] in the lower half before the others; returns where the others begin."""
    while True:
        while begin < end and not is_upper(points[order[begin]], turn, turns):
            begin += 1
        while begin < end and is_upper(points[order[end - 1]], turn, turns):
            end -= 1
        if begin == end:
            return begin
        order[begin], order[end - 1] = order[end - 1], order[begin]


@jit
def _regions(
    points: np.ndarray, order: np.ndarray, begins: np.ndarray, halvings: np.ndarray, turns: Turns
) -> np.ndarray:
    """The bounds [pages, c] int32 of each page's region, found from one of its points; a page without points has the
    whole space."""
    bounds = np.zeros((len(halvings), points.shape[1]), np.int32)
    for page in range(len(halvings)):
        if begins[page] < begins[page + 1]:
            bounds[page] = points[order[begins[page]]]
        set_region(bounds[page], bounds[page], halvings[page], turns)
    return bounds
