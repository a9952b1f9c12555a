"""Searches the settings of a plan with Ax and BoTorch, in one process with the simulator: latput runs them and confirms the winner.

Usage: ax_search.py RUNS PLAN SYSTEM OUTPUT
Example: ax_search.py 24 plan.toml server-10g found.db        (pip install latput ax-platform)
"""

import logging
import math
import sys
from pathlib import Path

import latput
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig


def told(seen):
    """What Ax is told of a setting: the logarithm of its cost, and how far it is beyond the limit that it keeps worst."""
    return {"cost": math.log(seen.cost), "beyond": max(seen.limits_ratio, default=0.0) - 1.0}


def main(runs, plan, system, output):
    # Ax tells of every trial.
    logging.disable(logging.WARNING)
    with latput.Search(Path(plan).read_text(), system, output=output) as search:
        # The levels of numbers are in order, which an index keeps. A factor of one level leaves nothing to choose.
        open_to_choice = {name: levels for name, levels in search.factors.items() if len(levels) > 1}
        # Names of factors have characters that Ax keeps for formulas.
        names = {f"x{at}": name for at, name in enumerate(open_to_choice)}
        client = Client(random_seed=1)
        client.configure_experiment(
            parameters=[
                RangeParameterConfig(name=own, parameter_type="int", bounds=(0, len(open_to_choice[name]) - 1))
                for own, name in names.items()
            ]
        )
        client.configure_optimization(objective="-cost", outcome_constraints=["beyond <= 0"])
        for seen in search.observed:
            if seen.setting is not None and seen.cost is not None:
                trial = client.attach_trial({own: seen.setting[name] for own, name in names.items()})
                client.complete_trial(trial, raw_data=told(seen))
        for _ in range(runs):
            if search.ended:
                break
            [(trial, chosen)] = client.get_next_trials(max_trials=1).items()
            setting = {name: 0 for name in search.factors} | {names[own]: int(level) for own, level in chosen.items()}
            [seen] = search.suggest([setting])
            if seen.cost is None:
                client.mark_trial_failed(trial)
            else:
                client.complete_trial(trial, raw_data=told(seen))
        print(search.done().headline.sentence)


if __name__ == "__main__":
    if len(sys.argv) != 5 or not sys.argv[1].isdigit():
        sys.exit(__doc__.strip())
    main(int(sys.argv[1]), *sys.argv[2:])
