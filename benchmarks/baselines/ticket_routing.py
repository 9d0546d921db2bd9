"""Ticket Routing (Avnur and Hellerstein, Eddies), which the ASC paper is compared with, over the same constructs.

There is one selection module for each p-attribute. A row visits each module at most once, until no query is left for
it. Where it goes next is drawn by lottery among the modules that it has not visited: a module has one ticket to begin
with (ours, so that each is drawn at times), gets one when it is given a row and loses one when it gives the row back.
"""

from __future__ import annotations

import numpy as np

from benchmarks.jit import jit
from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.engines.asc.evaluate import Bitmaps, evaluate


def ticket_routing(constructs: SelectionConstructs, codes: np.ndarray, seed: int = 7) -> tuple[np.ndarray, int]:
    """The matches [rows] int64 of each row of codes [attributes, rows], and the modules that were visited."""
    rows = constructs.rows(codes)
    matches = np.zeros(rows.shape[1], np.int64)
    draws = np.random.default_rng(seed).random(rows.shape[1] * len(constructs.attributes))
    return matches, int(_route(rows, constructs.bitmaps, constructs.attributes.astype(np.int64), draws, matches))


@jit
def _route(codes: np.ndarray, bitmaps: Bitmaps, modules: np.ndarray, draws: np.ndarray, matches: np.ndarray) -> int:
    tickets = np.ones(len(modules), np.int64)
    unvisited = np.empty(len(modules), np.int64)
    grb = np.empty(bitmaps.words, np.uint64)
    visits = 0
    for row in range(codes.shape[1]):
        for word in range(bitmaps.words):
            grb[word] = bitmaps.live[word]
        for module in range(len(modules)):
            unvisited[module] = module
        left = True
        remaining = len(modules)
        while left and remaining > 0:
            total = 0
            for place in range(remaining):
                total += tickets[unvisited[place]]
            ticket = int(draws[visits] * total)
            place = 0
            while ticket >= tickets[unvisited[place]]:
                ticket -= tickets[unvisited[place]]
                place += 1
            module = unvisited[place]
            remaining -= 1
            unvisited[place] = unvisited[remaining]
            visits += 1
            region = bitmaps.region_at[modules[module]] + codes[modules[module], row]
            left = evaluate(grb, bitmaps.qrb, region, bitmaps.words)
            # a row that is dropped is not given back
            if not left:
                tickets[module] += 1
        for word in range(bitmaps.words):
            bits = grb[word]
            while bits:
                matches[row] += 1
                bits &= bits - np.uint64(1)
    return visits
