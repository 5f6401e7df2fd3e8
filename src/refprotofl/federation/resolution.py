"""Resolving an experiment: filling in the method's own defaults, and what the data decide."""

from refprotofl.core import ALL, InputError, shares_backbone
from refprotofl.data import FederatedData, covered_classes, default_per_class
from refprotofl.experiment import Experiment, Input, Public
from refprotofl.federation.statistics import DataFacts, find_facts
from refprotofl.inputs import IMAGE, find_kind
from refprotofl.methods import Server, create_aggregator, create_compressor, find_method, with_options
from refprotofl.methods.base.augmentation import check_augmentations
from refprotofl.privacy import create_mechanism


def prepare(experiment: Experiment) -> Experiment:
    """Return the experiment with all that can be filled in and checked before there are data."""
    experiment = with_options(experiment)
    check_backbones(experiment)
    check_compressor(experiment)
    check_aggregate(experiment)
    check_finetuning(experiment)
    privacy = create_mechanism(experiment)
    privacy.check_method()
    privacy.check_accountant()
    return experiment


def check_backbones(experiment: Experiment) -> None:
    """Refuse different backbones where the method shares the backbone."""
    named = experiment.model.name
    names = (named,) if isinstance(named, str) else tuple(dict.fromkeys(named))
    if len(names) > 1 and shares_backbone(find_method(experiment.method).shared(experiment)):
        full = ' with share = "full"' if experiment.share == "full" else ""
        raise InputError(
            f"method = {experiment.method!r}{full} shares the backbone, so model.name must be one for all clients, "
            f"not {', '.join(names)}."
        )


def check_trigger(experiment: Experiment) -> None:
    if experiment.attack.kind == "backdoor" and experiment.known_input.kind != IMAGE:
        plural = experiment.known_input.input_kind.plural
        raise InputError(f'attack.kind = "backdoor": its trigger is a bright square on images, not on {plural}.')


def check_compressor(experiment: Experiment) -> None:
    compressor, method = create_compressor(experiment), find_method(experiment.method)  # a user's own is found now
    if method.changes_once and compressor.feedback.server_memory:
        raise InputError(
            f"{experiment.compress.setting} counts the last changes of absent clients again in every round, but in "
            f"method = {experiment.method!r} {method.changes_once}: use another compressor."
        )
    if experiment.compress.enabled and not method.server.sends_weights:
        raise InputError(
            f"{experiment.compress.setting} has nothing to compress: "
            f"method = {experiment.method!r} sends no weights up; leave compress out."
        )


def check_aggregate(experiment: Experiment) -> None:
    """Refuse an aggregator, dropout or hostile clients that would have no effect."""
    method = find_method(experiment.method)
    if not experiment.aggregates_plainly and not method.server.averages:
        raise InputError(
            f"aggregate = {experiment.aggregate!r} and min-senders = {experiment.min_senders} have no effect on "
            f"method = {experiment.method!r}, whose server averages neither weights nor class prototypes by an "
            "aggregator: leave both out."
        )
    aggregator = create_aggregator(experiment)  # a user's own is found now
    if aggregator.needs_full_changes and create_compressor(experiment).leaves_zeros:
        raise InputError(
            f"{experiment.compress.setting} takes what it does not send for unchanged, so that with aggregate = "
            f"{experiment.aggregate!r} hardly anything would move: use clipped, geometric-median or another compressor."
        )
    if experiment.attack.kind != "none" and method.pooled:
        raise InputError(f"attack.kind = {experiment.attack.kind!r}: {experiment.method!r} asks no clients.")
    if experiment.dropout and method.pooled:
        raise InputError(
            f"dropout = {experiment.dropout:g} has no effect: method = {experiment.method!r} asks no clients."
        )


def common_model_problem(experiment: Experiment) -> str:
    """Return why the clients of an experiment have no common model; "" if they have one."""
    method, parts = find_method(experiment.method), find_method(experiment.method).shared(experiment)
    if method.pooled:
        return "its clients do not train"
    if {*parts} != {*ALL}:
        return f"clients share {' and '.join(parts)} alone" if parts else "clients share no weights"
    if experiment.model.norm == "batch-local":
        return 'with model.norm = "batch-local" each client has batch statistics of its own'
    if method.server.global_model is Server.global_model:
        return f"{method.server.__name__}.global_model returns none"
    return ""


def check_finetuning(experiment: Experiment) -> None:
    """Refuse [finetune] where there is no common model to start from."""
    reason = common_model_problem(experiment) if experiment.finetune.passes else ""
    if reason:
        raise InputError(
            f"[finetune] starts from a common model, which method = {experiment.method!r} does not have: {reason}. "
            "Leave [finetune] out."
        )


def resolve(experiment: Experiment, data: FederatedData, known: DataFacts | None = None) -> Experiment:
    """Return the experiment with everything filled in that the data decide; `known` facts are not found again."""
    dataset, covered = data.dataset, data.public_classes
    found = known or find_facts(experiment, data)
    seen = Input(
        class_names=dataset.class_names,
        shape=dataset.shape,
        mean=found.facts.mean,
        std=found.facts.std,
        client_names=data.client_names,
        kind=dataset.kind,
        normalisation="" if find_kind(dataset.kind).published else found.rule,
        vocabulary=found.facts.vocabulary,
        feature_names=dataset.feature_names,
    )
    per_class = data.public_size // len(covered) if covered else 0
    return fill_in(experiment, seen, covered, per_class)


def resolve_alike(experiment: Experiment, other: Experiment) -> Experiment:
    """Return the experiment as the data of `other`, which is resolved, would fill it in, without loading them."""
    seen, public = other.known_input, experiment.public
    if public.dataset and public.dataset == other.public.dataset:
        public = _as_drawn(public, other.public)
        experiment = experiment.model_copy(update={"public": public})
    classes = None if public.classes is None else [number for number in public.classes if number < seen.num_classes]
    covered = covered_classes(seen.num_classes, public.coverage, classes, experiment.seed)
    per_class = default_per_class(seen.num_classes) if public.per_class is None else public.per_class
    return fill_in(experiment, seen, covered, per_class) if covered and per_class else fill_in(experiment, seen, (), 0)


def resolve_apart(experiment: Experiment, other: Experiment) -> Experiment:
    """Return the same for a deployment: nothing is held out of the clients' data, and [input] may describe the data."""
    if experiment.public.dataset:
        return resolve_alike(experiment, other)
    stated = None if experiment.test.dataset else experiment.input
    return fill_in(experiment, stated or other.known_input, (), 0)


def _as_drawn(public: Public, other: Public) -> Public:
    """Return the keys, with those that are open as a public set of the user's own decides them."""
    update: dict[str, object] = {}
    if public.per_class is None:
        update["per_class"] = other.per_class
    if public.classes is not None:
        update["classes"] = tuple(number for number in public.classes if number in (other.classes or ()))
    elif public.coverage == other.coverage:
        update["classes"] = other.classes
    return public.model_copy(update=update)


def fill_in(experiment: Experiment, seen: Input, covered: tuple[int, ...], per_class: int) -> Experiment:
    """Return the experiment with the format of its samples, and the classes and size of its public set."""
    public = experiment.public.model_copy(update={"classes": covered, "per_class": per_class})
    if experiment.partition != "natural":
        seen = seen.model_copy(update={"client_names": ()})
    clients = len(seen.client_names) or experiment.clients
    filled = experiment.model_copy(update={"input": seen, "public": public, "clients": clients})
    try:
        if filled.counts_clients:
            filled.check_clients()
    except ValueError as problem:
        raise InputError(f"The experiment {problem}.") from None
    create_mechanism(filled).check_method()  # what the public set covers is known now
    find_method(filled.method).check_input(filled)
    check_trigger(filled)
    check_augmentations(filled)
    return filled
