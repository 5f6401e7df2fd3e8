"""Our own method beside what it must match, and without each of its building stones: `reproduce thin`.

No table of the paper's, so `all` leaves it out. Every row says its schedule: FedAvg has twenty rounds of one epoch.
"""

from refprotofl.reproduction.studies import TRAIN_ON, Block, Row, Scope, Study, chosen

# As examples/thin.toml has it; what a row says once more wins.
_LONG = ":rounds=6:train.local-epochs=6:train.lr=0.02"
THIN = f"thin{_LONG}:thin.cooling=0.7"
_FEDAVG = "fedavg:share=full:rounds=20:train.local-epochs=1"

STONES: dict[str, str] = {
    "no error feedback": ":thin.feedback=off",
    "half a bit": ":thin.up-bits=0.5:thin.down-bits=0.5",
    "2 bits": ":thin.up-bits=2:thin.down-bits=2",
    "2 bits, entropy code": ":thin.up-bits=2:thin.down-bits=2:thin.code=entropy",
    "1 bit, entropy code": ":thin.code=entropy",
    "as many bytes, sparse": ":thin.code=sparse",
    "no server passes": ":thin.server-epochs=0",
    "clients train on the public images instead": f":thin.server-epochs=0{TRAIN_ON}",
    "pre-trained at the server": ":thin.pretrain=3",
    "12 rounds of 3 epochs": ":rounds=12:train.local-epochs=3",
    "6 rounds of 3 epochs": ":train.local-epochs=3",
    "no cooling": ":thin.cooling=1.0",
    "proximal pull": ":thin.drift=proximal",
    "anchors": ":thin.drift=anchors:thin.strength=0.1",
    "no tuning for oneself": ":thin.tune-epochs=0",
}

BESIDE: dict[str, str] = {
    "FedAvg": _FEDAVG,
    "FedAvg + public images": _FEDAVG + TRAIN_ON,
    "FedAvg + public images, lr 0.02": f"{_FEDAVG}{TRAIN_ON}:train.lr=0.02",
    "FedAvg + public images, 6 rounds of 6 epochs": f"fedavg:share=full{_LONG}{TRAIN_ON}",
    "FedAvg, 6 rounds of 3 epochs": "fedavg:share=full:rounds=6:train.local-epochs=3",
    "FedAvg + public images, STC 5 %": f"{_FEDAVG}{TRAIN_ON}:compress.name=stc:compress.keep=0.05",
    "FedPer + public images": f"fedper:rounds=20:train.local-epochs=1{TRAIN_ON}",
    "FedRep + public images": f"fedrep:rounds=20:train.local-epochs=1{TRAIN_ON}",
    "RefProtoFL": "refprotofl:rounds=20:train.local-epochs=1",
    "local + public images": f"local:rounds=20:train.local-epochs=1{TRAIN_ON}",
}

_ON_WHAT = "Compute differs: mind the columns of local epochs and steps, and server passes, which are not in them"


def thin_studies(scope: Scope) -> list[Study]:
    """The same runs scored as one model for all, and on each client's own mix of classes."""
    rows = (
        Row("thin", THIN),
        *(Row(f"thin, {words}", THIN + switches) for words, switches in STONES.items()),
        *(Row(words, asked) for words, asked in BESIDE.items()),
    )
    named = chosen(rows, scope)
    blocks = tuple(Block(dataset, alpha, named) for alpha in scope.alphas for dataset in scope.datasets if named)
    return [
        Study(
            f"thin-{protocol}", f"Thin by {protocol} accuracy", "standard", blocks, "thin", (_ON_WHAT,), scored=protocol
        )
        for protocol in ("global", "own")
    ]
