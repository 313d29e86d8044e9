"""The words: model, topology, batch, cluster, environment, trial. Frozen, validated, the same in TOML, JSON and Python.

    trial, recipe = trialfile.load("trial.toml", settings=["topology.tp=2", "batch.gbs=16"])
    rules.check(trial)            raises Infeasible with the numbers and the nearest values that work
    trial.run_id()                the hash of what was asked, defaulted fields left out

Each word checks what it can see alone; what takes two words (`dp x tp x pp = nodes x processes`) is in `rules.py`.
"""
from seatrial.spec.cluster import KNOWN_OF_MACHINE, Cluster, Device, Link
from seatrial.spec.execution import OVERLAPS, Attention, Command, Environment, Execution
from seatrial.spec.model import (
    FAMILIES,
    Architecture,
    Biases,
    Family,
    Latent,
    Mlp,
    Model,
    Norm,
    Positions,
    RopeScaling,
    Router,
    TokenSet,
    is_gated,
    kv_fits,
    model_of,
)
from seatrial.spec.numbers import BYTES, GIB, divisors, divisors_near, round_up
from seatrial.spec.topology import (
    MODULES,
    Balance,
    ContextKind,
    Dispatcher,
    ExpertPlace,
    Module,
    Place,
    Precision,
    Recompute,
    Topology,
    context_split,
    experts_of_stages,
    read_modules,
    stage_split,
    stages_of,
    usual_modules,
)
from seatrial.spec.trial import Batch, Trial

__all__ = ["BYTES", "FAMILIES", "GIB", "KNOWN_OF_MACHINE", "MODULES", "OVERLAPS", "Architecture", "Attention",
           "Balance", "Batch", "Biases", "Cluster", "Command", "ContextKind", "Device", "Dispatcher", "Environment",
           "Execution", "ExpertPlace", "Family", "Latent", "Link", "Mlp", "Model", "Module", "Norm", "Place",
           "Positions", "Precision", "Recompute", "RopeScaling", "Router", "TokenSet", "Topology", "Trial",
           "context_split", "divisors", "divisors_near", "experts_of_stages", "is_gated", "kv_fits",
    "model_of", "read_modules",
           "round_up", "stage_split", "stages_of", "usual_modules"]
