"""Searches the settings of a plan with SMAC3, in one process with the simulator: latput runs them and confirms the winner.

Usage: smac_search.py RUNS PLAN SYSTEM OUTPUT
Example: smac_search.py 24 plan.toml server-10g found.db        (pip install latput smac)
"""

import logging
import sys
import tempfile
from pathlib import Path

import latput
from ConfigSpace import ConfigurationSpace, Integer
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import StatusType, TrialInfo, TrialValue

#: SMAC3 knows no limits: what breaks one costs more than anything that keeps it.
BROKEN = 1e12


def told(seen):
    """What SMAC3 is told of a setting."""
    if seen.cost is None:
        return TrialValue(cost=BROKEN, status=StatusType.CRASHED)
    worst = max(seen.limits_ratio, default=0.0)
    return TrialValue(cost=seen.cost if worst <= 1.0 else BROKEN * worst)


def main(runs, plan, system, output):
    with latput.Search(Path(plan).read_text(), system, output=output) as search, tempfile.TemporaryDirectory() as folder:
        # The levels of numbers are in order, which an index keeps. A factor of one level leaves nothing to choose.
        open_to_choice = {name: levels for name, levels in search.factors.items() if len(levels) > 1}
        space = ConfigurationSpace(seed=1)
        space.add([Integer(name, (0, len(levels) - 1), default=0) for name, levels in open_to_choice.items()])
        scenario = Scenario(space, n_trials=runs, seed=1, output_directory=Path(folder))
        smac = HyperparameterOptimizationFacade(scenario, lambda config, seed=0: 0.0, logging_level=logging.ERROR)
        for seen in search.observed:
            if seen.setting is not None:
                known = {name: seen.setting[name] for name in open_to_choice}
                config = space.get_default_configuration()
                for name, level in known.items():
                    config[name] = level
                smac.tell(TrialInfo(config, seed=0), told(seen))
        for _ in range(runs):
            if search.ended:
                break
            info = smac.ask()
            setting = {name: int(info.config[name]) if name in open_to_choice else 0 for name in search.factors}
            [seen] = search.suggest([setting])
            smac.tell(info, told(seen))
        print(search.done().headline.sentence)


if __name__ == "__main__":
    if len(sys.argv) != 5 or not sys.argv[1].isdigit():
        sys.exit(__doc__.strip())
    main(int(sys.argv[1]), *sys.argv[2:])
