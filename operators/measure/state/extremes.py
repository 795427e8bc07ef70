"""The extremes of an optimizer's state, of which some blocks are read at a time, for the tier that bounds them."""

from __future__ import annotations

import numpy as np

from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.measure.state.snapshot import Snapshot

__all__ = ["StateExtremes"]


class StateExtremes:
    """What is known of each block of the state, for blocks are read in turns.

    Args:
        state: Whose.

    Attributes:
        where: Per value the name of the tensor it was found in.
    """

    def __init__(self, state: OptimizerState) -> None:
        self.where: dict[str, str] = {}
        self._state = state
        self._names = [parameter.name for parameter in state.parameters]
        self._ends = np.cumsum([len(group.parameters) for group in state.groups])
        self._latest = np.zeros((0, 2))
        self._read_at = np.zeros(0, np.int64)

    def take(self, snapshot: Snapshot, tensor_of: np.ndarray) -> tuple[dict[str, float], dict[str, float] | None]:
        """Takes in what was read after an update.

        Args:
            snapshot: With extremes.
            tensor_of: Per block the number of its tensor, ascending.

        Returns:
            Per group the largest magnitude of all blocks, `max_<group>`; of second moments the smallest value too,
            `min_<group>`. And by how much gradients can have raised them since the chosen blocks were read before.
        """
        if len(self._latest) != len(tensor_of):
            self._latest, self._read_at = np.zeros((len(tensor_of), 2)), np.zeros(len(tensor_of), np.int64)
        state, chosen, extremes = self._state, snapshot.chosen, snapshot.extremes
        growth = state.growth(int(self._read_at[chosen].min())) if len(chosen) else None
        self._latest[chosen], self._read_at[chosen] = extremes, state.updates
        values: dict[str, float] = {}
        begin = 0
        for group, end in zip(state.groups, np.searchsorted(tensor_of, self._ends), strict=True):
            if end > begin:
                largest, smallest = self._latest[begin:end, 0], self._latest[begin:end, 1]
                at = {f"max_{group.name}": begin + int(np.argmax(largest))}  # the first nan, if there is one
                if group.second_moment:
                    at[f"min_{group.name}"] = begin + int(np.argmin(smallest))
                for column, (name, block) in enumerate(at.items()):
                    values[name] = float(self._latest[block, column])
                    self.where[name] = self._names[tensor_of[block]]
            begin = end
        self._latest[chosen] = np.where(np.isfinite(extremes), extremes, 0.0)  # an alarm a reading
        return values, growth
