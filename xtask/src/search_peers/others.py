"""Other optimisers on the cases of `bench_search`: one JSON line for each search.

Usage: others.py CASES SEEDS PART PARTS METHOD... The same noise, budget and answers as latput's own search gets; of the
limit it is told the true figure, which latput must learn.
"""

import json
import logging
import math
import random
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

NOISE = (0.02, 0.03, 0.02)
DRIFT = 0.03
ODD = 15.0
BLOCK = 4
# More than any cost's logarithm differs.
BROKEN = 10.0


class Host:
    """A tabulated host with the noise of real ones."""

    def __init__(self, figures, seed):
        self.figures = figures
        self.rng = random.Random(seed)
        self.drift = 0.0

    def begin_block(self):
        self.drift = DRIFT * self.rng.gauss(0.0, 1.0)

    def run(self, setting):
        is_odd = self.rng.random() < 1.0 / ODD
        worse = math.log(1.1 + 3.9 * self.rng.random() ** 3) if is_odd else 0.0
        run = []
        for at, figure in enumerate(self.figures[setting]):
            towards_worse = -1.0 if at == 0 else 1.0
            log = NOISE[at] * self.rng.gauss(0.0, 1.0) + towards_worse * (self.drift + worse)
            run.append(figure * math.exp(log))
        return run


class Tpe:
    """Optuna's TPE, with the limit as a constraint."""

    def __init__(self, case, seed):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        constraints = (lambda trial: (trial.user_attrs["short"],)) if case["least_rate"] is not None else None
        sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=constraints)
        self.axes = case["axes"]
        self.study = optuna.create_study(sampler=sampler)
        self.study.enqueue_trial({f"x{at}": 0 for at in range(len(self.axes))})

    def ask(self):
        self.trial = self.study.ask()
        levels = []
        for at, (count, is_ordered) in enumerate(self.axes):
            if is_ordered:
                levels.append(self.trial.suggest_int(f"x{at}", 0, count - 1))
            else:
                levels.append(self.trial.suggest_categorical(f"x{at}", list(range(count))))
        return levels

    def tell(self, log_cost, short):
        if short is not None:
            self.trial.set_user_attr("short", short)
        self.study.tell(self.trial, log_cost)


class Smac:
    """SMAC3 with random forests. It knows no limits: what breaks one costs more than anything that keeps it."""

    def __init__(self, case, seed):
        from ConfigSpace import Categorical, ConfigurationSpace, Integer
        from smac import HyperparameterOptimizationFacade, Scenario

        space = ConfigurationSpace(seed=seed)
        for at, (count, is_ordered) in enumerate(case["axes"]):
            if is_ordered:
                space.add(Integer(f"x{at}", (0, max(1, count - 1)), default=0))
            else:
                space.add(Categorical(f"x{at}", list(range(count)), default=0))
        self.axes = case["axes"]
        self.folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            space, n_trials=case["budget"], seed=seed % 2**31, deterministic=False, output_directory=Path(self.folder.name)
        )
        self.smac = HyperparameterOptimizationFacade(
            scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=logging.CRITICAL
        )
        self.today = space.get_default_configuration()

    def ask(self):
        from smac.runhistory import TrialInfo

        if self.today is not None:
            self.info, self.today = TrialInfo(self.today, seed=0), None
        else:
            self.info = self.smac.ask()
        return [min(int(self.info.config[f"x{at}"]), count - 1) for at, (count, _) in enumerate(self.axes)]

    def tell(self, log_cost, short):
        from smac.runhistory import TrialValue

        broken = short is not None and short > 0.0
        self.smac.tell(self.info, TrialValue(cost=log_cost + (BROKEN + short if broken else 0.0)))


class Ax:
    """Ax with BoTorch's Gaussian processes, with the limit as a constraint of the outcome."""

    def __init__(self, case, seed):
        import torch
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        # Each of its loggers has a level of its own.
        logging.disable(logging.CRITICAL)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.axes = case["axes"]
        parameters = []
        for at, (count, is_ordered) in enumerate(self.axes):
            if count == 1:
                continue
            if is_ordered and count > 2:
                parameters.append(RangeParameterConfig(name=f"x{at}", parameter_type="int", bounds=(0, count - 1)))
            else:
                values = list(range(count))
                parameters.append(
                    ChoiceParameterConfig(name=f"x{at}", parameter_type="int", values=values, is_ordered=is_ordered)
                )
        self.client = Client(random_seed=seed % 2**31)
        self.client.configure_experiment(parameters=parameters)
        limits = ["short <= 0"] if case["least_rate"] is not None else None
        self.client.configure_optimization(objective="-cost", outcome_constraints=limits)
        self.today = {parameter.name: 0 for parameter in parameters}

    def ask(self):
        if self.today is not None:
            chosen, self.today = self.today, None
            self.trial = self.client.attach_trial(chosen)
        else:
            [(self.trial, chosen)] = self.client.get_next_trials(max_trials=1).items()
        return [int(chosen.get(f"x{at}", 0)) for at in range(len(self.axes))]

    def tell(self, log_cost, short):
        seen = {"cost": log_cost} if short is None else {"cost": log_cost, "short": short}
        self.client.complete_trial(self.trial, raw_data=seen)


METHODS = {"tpe": Tpe, "smac": Smac, "ax": Ax}


def search(case, seed, method):
    """One search; the best that was seen to keep the limit leads."""
    own = zlib.crc32(case["case"].encode()) ^ seed
    host = Host(case["figures"], own)
    least = case["least_rate"]
    other = METHODS[method](case, own)
    ended = {"case": case["case"], "method": method, "seed": seed, "found": None, "tried": None,
             "trials": case["budget"], "ends_near": False, "claim": None}
    best = None
    for done in range(1, case["budget"] + 1):
        if done % BLOCK == 1:
            host.begin_block()
        setting = 0
        for level, (levels, _) in zip(other.ask(), case["axes"]):
            setting = setting * levels + level
        figures = host.run(setting)
        cost = math.prod(figures[at] for at in case["cost"])
        keeps = least is None or figures[0] >= least
        other.tell(math.log(cost), None if least is None else math.log(least / figures[0]))
        if case["near"][setting] and ended["tried"] is None:
            ended["tried"] = done
        if keeps and (best is None or cost < best[0]):
            best = (cost, setting)
        if best is not None and case["near"][best[1]] and ended["found"] is None:
            ended["found"] = done
    ended["ends_near"] = best is not None and case["near"][best[1]]
    ended["excess"] = None
    if best is not None and (least is None or case["figures"][best[1]][0] >= 0.99 * least):
        ended["excess"] = case["costs"][best[1]] / case["best"]
    return ended


def main():
    warnings.simplefilter("ignore")
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    seeds, part, parts = (int(word) for word in sys.argv[2:5])
    methods = sys.argv[5:]
    todo = [(case, seed, method) for case in cases for seed in range(1, seeds + 1) for method in methods]
    own = todo[part::parts]
    for at, one in enumerate(own):
        if part == 0 and at % -(-len(own) // 20) == 0:
            print(f"others: search {at * parts} of {len(todo)}", file=sys.stderr, flush=True)
        print(json.dumps(search(*one)), flush=True)


main()
