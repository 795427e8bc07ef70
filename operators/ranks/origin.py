"""Origin of the values of this process."""

import mindspore as ms
from mindspore.communication import GlobalComm, get_group_size, get_rank

from asd.config import Config, is_simulated, visible_devices
from asd.errors import RankLostError
from asd.operators.ranks.exchange import Exchange
from asd.origin import Origin, device_name, mounted_chips

_agreed: dict[str, str] = {}  # names that the ranks of this job agreed on, by run folder


def origin_of_process(config: Config) -> Origin:
    """Returns run, rank, host and device of this process."""
    rank = get_rank() if GlobalComm.INITED else 0
    target, number = ms.get_context("device_target"), ms.get_context("device_id")
    named = device_name(target, rank if target == "CPU" else number, visible_devices(), mounted_chips())
    device = f"{target}:{config.device}" if config.device else named
    return Origin(_name_of_run(config), rank, config.name_of_node(), device)


def _name_of_run(config: Config) -> str:
    """Returns the configured name of the run, else the name that rank 0 sends to all ranks."""
    name = config.run or config.name_of_launch()
    if config.run or not GlobalComm.INITED or get_group_size() == 1 or is_simulated():
        return name
    if config.run_dir not in _agreed:
        try:
            _agreed[config.run_dir] = str(Exchange().tell(run=name)[0]["run"])
        except RankLostError:  # it was logged; a separate name is better than no detection
            return name
    return _agreed[config.run_dir]
