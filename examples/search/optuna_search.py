"""Searches the settings of a plan with Optuna: latput runs them and confirms the winner.

Usage: optuna_search.py RUNS PLAN [OPTION...]     RUNS settings; options are those of `latput search`
Example: optuna_search.py 40 plan.toml --on sim:server-10g -o found.db
"""

import json
import subprocess
import sys
import warnings

import optuna

BLOCK = 4


def excesses(trial):
    """By how much the limits of the goal are broken; Optuna wants 0 and below where they are kept."""
    return [ratio - 1.0 for ratio in trial.user_attrs["limits_ratio"]]


def main(runs, *arguments):
    command = ["latput", "search", "--ask-tell", *arguments]
    latput = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    sampler = optuna.samplers.TPESampler(seed=1, constant_liar=True, constraints_func=excesses)
    study = optuna.create_study(sampler=sampler)
    axes = {}
    waiting = []
    suggested = 0

    def answer(**what):
        latput.stdin.write(json.dumps(what) + "\n")
        latput.stdin.flush()

    def heard_of(setting):
        """The trial that waits for this setting; without one latput tells what it had seen before."""
        for trial, wanted in waiting:
            if wanted == setting:
                waiting.remove((trial, wanted))
                return trial
        study.enqueue_trial(setting)
        return study.ask(axes)

    for line in latput.stdout:
        said = json.loads(line)
        if said["kind"] == "space":
            # The levels of numbers are in order, which an index keeps.
            axes = {
                factor["name"]: optuna.distributions.IntDistribution(0, len(factor["levels"]) - 1)
                for factor in said["factors"]
            }
        elif said["kind"] == "observe" and said["setting"] is not None:
            trial = heard_of(said["setting"])
            trial.set_user_attr("limits_ratio", said["limits_ratio"])
            if said["cost"] is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, said["cost"])
        elif said["kind"] == "refused":
            study.tell(heard_of(said["setting"]), state=optuna.trial.TrialState.FAIL)
        elif said["kind"] == "ask" and suggested >= runs:
            answer(kind="done")
        elif said["kind"] == "ask":
            settings = []
            for _ in range(min(BLOCK, runs - suggested)):
                trial = study.ask(axes)
                suggested += 1
                waiting.append((trial, trial.params))
                settings.append(trial.params)
            answer(kind="suggest", settings=settings)
        elif said["kind"] == "ended":
            print("\n".join(said["remarks"]), file=sys.stderr)
    return latput.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__.strip())
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
