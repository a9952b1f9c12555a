"""Optuna's TPE on the cases of `bench_search`: one JSON line for each search.

Usage: tpe.py CASES SEEDS PART PARTS. The same noise, budget and answers as latput's own search gets; of the
limit it is told the true figure, which latput must learn.
"""

import json
import math
import random
import sys
import warnings
import zlib

import optuna

NOISE = (0.02, 0.03, 0.02)
DRIFT = 0.03
ODD = 15.0
BLOCK = 4


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


def search(case, seed):
    """One study; the best that was seen to keep the limit leads."""
    own = zlib.crc32(case["case"].encode()) ^ seed
    host = Host(case["figures"], own)
    least = case["least_rate"]
    constraints = None
    if least is not None:
        constraints = lambda trial: (trial.user_attrs["short"],)
    sampler = optuna.samplers.TPESampler(seed=own, constraints_func=constraints)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial({f"x{at}": 0 for at in range(len(case["axes"]))})
    ended = {"case": case["case"], "method": "tpe", "seed": seed, "found": None, "tried": None,
             "trials": case["budget"], "ends_near": False, "claim": None}
    best = None
    for done in range(1, case["budget"] + 1):
        if done % BLOCK == 1:
            host.begin_block()
        trial = study.ask()
        setting = 0
        for at, (levels, is_ordered) in enumerate(case["axes"]):
            name = f"x{at}"
            if is_ordered:
                level = trial.suggest_int(name, 0, levels - 1)
            else:
                level = trial.suggest_categorical(name, list(range(levels)))
            setting = setting * levels + level
        figures = host.run(setting)
        cost = math.prod(figures[at] for at in case["cost"])
        keeps = least is None or figures[0] >= least
        if least is not None:
            trial.set_user_attr("short", math.log(least / figures[0]))
        study.tell(trial, math.log(cost))
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
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    seeds, part, parts = (int(word) for word in sys.argv[2:5])
    todo = [(case, seed) for case in cases for seed in range(1, seeds + 1)]
    own = todo[part::parts]
    for at, (case, seed) in enumerate(own):
        if part == 0 and at % -(-len(own) // 20) == 0:
            print(f"tpe: search {at * parts} of {len(todo)}", file=sys.stderr, flush=True)
        print(json.dumps(search(case, seed)), flush=True)


main()
