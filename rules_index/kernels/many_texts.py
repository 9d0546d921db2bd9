"""Finds which of many texts occur in each of many strings, in one pass over the strings (Aho and Corasick, "Efficient
String Matching: An Aid to Bibliographic Search", 1975). Failure transitions are resolved into the goto table, which
makes the automaton a DFA."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def build_states(
    data: np.ndarray,
    offsets: np.ndarray,
    classes: np.ndarray,
    steps: np.ndarray,
    ends: np.ndarray,
    further: np.ndarray,
) -> int:
    """Builds the automaton of the texts `data[offsets[i]:offsets[i + 1]]`, which are distinct and not empty. Returns
    the number of its states.

    classes [256] int32: the class of each byte, 0 for bytes that are in no text. steps [states, classes] int32, zeros:
    receives the next state for each class. ends [states] int32, all -1: receives the text that ends in each state.
    further [states] int32, zeros: receives the state of the longest proper suffix of a state's text in which a text
    ends, or 0.
    """
    count = 1
    for text in range(len(offsets) - 1):
        state = 0
        for at in range(offsets[text], offsets[text + 1]):
            kind = classes[data[at]]
            if steps[state, kind] == 0:
                steps[state, kind] = count
                count += 1
            state = steps[state, kind]
        ends[state] = text
    failures = np.zeros(count, np.int32)
    queue = np.empty(count, np.int32)
    first, last = 0, 0
    for kind in range(1, steps.shape[1]):
        if steps[0, kind]:
            queue[last] = steps[0, kind]
            last += 1
    while first < last:
        state = queue[first]
        first += 1
        failure = failures[state]
        further[state] = failure if ends[failure] >= 0 else further[failure]
        for kind in range(1, steps.shape[1]):
            after = steps[state, kind]
            if after:
                failures[after] = steps[failure, kind]
                queue[last] = after
                last += 1
            else:
                steps[state, kind] = steps[failure, kind]
    return count


@jit
def find_texts(
    data: np.ndarray,
    offsets: np.ndarray,
    valid: np.ndarray,
    classes: np.ndarray,
    steps: np.ndarray,
    ends: np.ndarray,
    further: np.ndarray,
    seen: np.ndarray,
    texts: np.ndarray,
    strings: np.ndarray,
) -> int:
    """Writes a pair (text, string) for each text that occurs in a valid string to `texts` and `strings` int32, by
    ascending string, as many as fit. Returns how many there are. seen [texts] int64 is scratch, all -1."""
    count = 0
    for string in range(len(valid)):
        if not valid[string]:
            continue
        state = np.int32(0)
        for at in range(offsets[string], offsets[string + 1]):
            state = steps[state, classes[data[at]]]
            found = state if ends[state] >= 0 else further[state]
            while found:
                text = ends[found]
                if seen[text] == string:
                    break  # its suffixes have been seen with it
                seen[text] = string
                if count < len(texts):
                    texts[count] = text
                    strings[count] = string
                count += 1
                found = further[found]
    return count
