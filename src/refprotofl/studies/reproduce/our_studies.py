"""Studies that the paper does not have; `all` leaves them out.

- `thin`: our own method next to the methods that it must match; rows set their schedule: FedAvg has twenty rounds of
  one epoch.
- `rivals`: thin next to compressed FedAvg in its schedule.
- `headline`: the rows that our claims are about, with the same fine-tuning for FedAvg.
- `thin-ablation`: thin without each of its components.
- `plus`: from the paper's defaults, step by step, to the settings that make the most of its method.
"""

from collections.abc import Mapping

from refprotofl.studies.reproduce.studies import TRAIN_ON, Block, Row, Scope, Study, chosen

# The settings of examples/thin.toml; a later switch of a row overrides an earlier one.
_RATE = "train.lr"
_LONG = ":rounds=6:train.local-epochs=6"
_FINETUNE = ":finetune.epochs=3:finetune.rate=0.1"
_STC = ":compress.name=stc:compress.keep=0.05"
_HEAD_FIRST = ":finetune.head-epochs=3"  # LP-FT
THIN = (
    f"thin{_LONG}:{_RATE}=0.1:thin.cooling=0.7:thin.last-up-bits=1.7:thin.server-epochs=5:thin.distil=1"
    f":thin.balance=on{_FINETUNE}"
)
_UNTAUGHT = ":thin.distil=0:thin.balance=off"
_TWENTY = ":rounds=20:train.local-epochs=1"
_FEDAVG = f"fedavg:share=full{_TWENTY}"

ABLATIONS: dict[str, str] = {
    "no error feedback": ":thin.feedback=off",
    "last upload at 1 bit": ":thin.last-up-bits=1",
    "0.5 bits": ":thin.up-bits=0.5:thin.down-bits=0.5:thin.last-up-bits=0.5",
    "2 bits": ":thin.up-bits=2:thin.down-bits=2:thin.last-up-bits=2",
    "rotated code, same bytes": ":thin.code=rotated",
    "sparse code, same bytes": ":thin.code=sparse",
    "no distillation": _UNTAUGHT,
    "no correction for class priors": ":thin.balance=off",
    "no server passes": f":thin.server-epochs=0{_UNTAUGHT}",
    "clients train on the public images instead": f":thin.server-epochs=0{_UNTAUGHT}{TRAIN_ON}",
    "pre-trained at the server": ":thin.pretrain=3",
    "6 rounds of 3 epochs": ":train.local-epochs=3",
    "constant learning rate": ":thin.cooling=1.0",
    "proximal term": ":thin.drift=proximal",
    "anchors": ":thin.drift=anchors:thin.strength=0.1",
    "fine-tuning at the full rate": ":finetune.rate=1.0",
    "no fine-tuning": ":finetune.epochs=0:finetune.rate=1.0",
    "initial weights sent": ":first-weights=sent",
}

COMPARED: dict[str, str] = {
    "FedAvg": _FEDAVG,
    "FedAvg + public images": _FEDAVG + TRAIN_ON,
    "FedAvg + public images, 6 rounds of 6 epochs": f"fedavg:share=full{_LONG}{TRAIN_ON}",
    "FedAvg, 10 rounds of 1 epoch": "fedavg:share=full:rounds=10:train.local-epochs=1",
    "FedAvg, 10 rounds of 2 epochs": "fedavg:share=full:rounds=10:train.local-epochs=2",
    "FedAvg, 6 rounds of 3 epochs": "fedavg:share=full:rounds=6:train.local-epochs=3",
    "FedAvg + public images, STC 5 %": f"{_FEDAVG}{TRAIN_ON}{_STC}",
    "FedPer + public images": f"fedper{_TWENTY}{TRAIN_ON}",
    "FedRep + public images": f"fedrep{_TWENTY}{TRAIN_ON}",
    "FedPAC": f"fedpac{_TWENTY}",
    "FedPAC + public images": f"fedpac{_TWENTY}{TRAIN_ON}",
    "RefProtoFL": f"refprotofl{_TWENTY}",
    "local + public images": f"local{_TWENTY}{TRAIN_ON}",
}

_PUBLIC = "FedAvg + public images"
HEADLINE: dict[str, str] = {
    "thin, 8 bits": f"{THIN}:thin.up-bits=8:thin.down-bits=8:thin.last-up-bits=8",
    **{label: COMPARED[label] for label in ("FedAvg", _PUBLIC)},
    "FedAvg, fine-tuned": _FEDAVG + _FINETUNE,
    f"{_PUBLIC}, fine-tuned": f"{_FEDAVG}{TRAIN_ON}{_FINETUNE}",
    f"{_PUBLIC}, head first, then fine-tuned": f"{_FEDAVG}{TRAIN_ON}{_FINETUNE}{_HEAD_FIRST}",
    f"{_PUBLIC}, STC 5 %": COMPARED[f"{_PUBLIC}, STC 5 %"],
    f"{_PUBLIC}, STC 5 %, 6 rounds of 6 epochs": f"fedavg:share=full{_LONG}{TRAIN_ON}{_STC}",
    "FedPAC + public images": COMPARED["FedPAC + public images"],
    "RefProtoFL": COMPARED["RefProtoFL"],
    "LG-FedAvg": f"lg-fedavg{_TWENTY}",
    "local + public images": COMPARED["local + public images"],
}

# FedAvg in thin's schedule, compressed in both directions, tuned by studies/tuning/*-compressed.toml.
_SAME = ":compress.downlink=same"
_COMPRESSORS = {
    "STC 1 %": ":compress.name=stc:compress.keep=0.01",
    "STC 5 %": _STC,
    "STC 10 %": ":compress.name=stc:compress.keep=0.1",
    "top-k 5 % with feedback": f":compress.name=top-k-ef:compress.keep=0.05{_SAME}",
    "QSGD 4 bits": f":compress.name=qsgd:compress.bits=4:compress.bucket=48{_SAME}",
    "QSGD 8 bits": f":compress.name=qsgd:compress.bits=8{_SAME}",
    "EDEN 1 bit": f":compress.name=eden:compress.bits=1{_SAME}",
    "EDEN 4 bits": f":compress.name=eden:compress.bits=4{_SAME}",
}
RIVALS: dict[str, str] = {
    f"{_PUBLIC}, 6 rounds of 6 epochs": COMPARED[f"{_PUBLIC}, 6 rounds of 6 epochs"],
    **{f"{_PUBLIC}, {name}": f"fedavg:share=full{_LONG}{TRAIN_ON}{own}" for name, own in _COMPRESSORS.items()},
}

# Cumulative: each step includes those before it; the last is examples/refprotofl-plus.toml.
STEPS: dict[str, str] = {
    "public images trained on": TRAIN_ON,
    "changes in 8 bits": ":refprotofl.value-type=int8",
    "sparse downlink": ":refprotofl.downlink=sparse",
    "prototypes in 16 bits": ":refprotofl.prototype-type=bfloat16",
    "prototypes after training": ":refprotofl.timing=post-train",
    "entropy code": ":value-code=entropy",
}

_ON_WHAT = "Compute differs between rows: local epochs and steps have columns, the passes of the server are in neither"
OURS = ("thin", "rivals", "headline", "thin-ablation", "plus")
REFERENCES = tuple(label for label in COMPARED if label == "FedAvg" or label.startswith("FedAvg, "))


def our_studies(table: str, scope: Scope) -> list[Study]:
    """Build studies of the same runs, each scored by another protocol."""
    if table == "plus":
        return _studies(table, "From RefProtoFL to refprotofl-plus", _plus_rows(), ("personal", "own"), scope)
    others = {
        "thin": COMPARED,
        "rivals": RIVALS,
        "headline": HEADLINE,
        "thin-ablation": {f"thin, {words}": THIN + switches for words, switches in ABLATIONS.items()},
    }[table]
    titles = {"rivals": "Thin and compressed FedAvg", "headline": "Headline rows", "thin-ablation": "Ablation of thin"}
    title = titles.get(table, "Thin")
    return _studies(table, title, {"thin": THIN, **others}, ("global", "personal", "own"), scope, (_ON_WHAT,))


def _plus_rows() -> dict[str, str]:
    rows = {"RefProtoFL": "refprotofl"}
    switches = ""
    for words, one in STEPS.items():
        switches += one
        rows[f"+ {words}"] = f"refprotofl{switches}"
    return rows


def _studies(
    table: str,
    title: str,
    asked: Mapping[str, str],
    protocols: tuple[str, ...],
    scope: Scope,
    notes: tuple[str, ...] = (),
) -> list[Study]:
    rows = chosen([Row(label, one, searched=_searched(one)) for label, one in asked.items()], scope)
    blocks = tuple(Block(dataset, alpha, rows) for alpha in scope.alphas for dataset in scope.datasets if rows)
    first = next(iter(asked))
    references = REFERENCES if {*REFERENCES} <= asked.keys() else ()
    return [
        Study(
            name=f"{table}-{one}",
            title=f"{title}, by {one} accuracy",
            variant="standard",
            blocks=blocks,
            baseline=first,
            notes=notes,
            references=references,
            scored=one,
        )
        for one in protocols
    ]


def _searched(asked: str) -> frozenset[str]:
    """Return the keys that a search may override: Thin's learning rate, chosen on one data set."""
    return frozenset({_RATE} if asked.startswith(THIN) else ())
