"""The front of accuracy against bytes, limits by hand, and the candidates that continue."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.core.network import Link
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.studies.frontier import front as searching
from refprotofl.studies.frontier.candidates import Candidate, Request, Schedule, default_methods, read_schedules
from refprotofl.studies.frontier.front import CandidateResult, Frontier, check, front_of, frontier, plan, ranked
from refprotofl.studies.frontier.front_table import table_of
from refprotofl.studies.frontier.limits import Deadline, EachRound, Sent, Total, message_within, sent_by
from refprotofl.studies.planner import Outcomes
from refprotofl.studies.results import result_of
from refprotofl.studies.trials import Base, Trial

METHODS = default_methods("personal", with_schedules=False)
SENT = Sent(rounds=10, participations=20, up=4000, down=6000, once=500, messages=40, joined=2, busiest=700)


def tried(name: str, accuracy: float, total: float) -> CandidateResult:
    sent = Sent(10, 20, total, 0, 0, 40, 2, 100)
    return CandidateResult(Candidate(name, name, Schedule(10, 1)), 10, {0: accuracy}, sent, 0.5)


def test_the_front_is_what_no_other_dominates() -> None:
    good, cheap = tried("good", 0.9, 900), tried("cheap", 0.5, 10)
    middle, beaten = tried("middle", 0.8, 300), tried("beaten", 0.7, 400)
    twin = tried("twin", 0.8, 300)
    assert front_of([good, beaten, cheap, middle, twin]) == [good, cheap, middle, twin]
    assert ranked([beaten, cheap, middle, good]) == [good, middle, cheap, beaten]


def test_what_is_allowed_is_counted_by_hand() -> None:
    assert Total(21_000).share(SENT) == pytest.approx(0.5)
    assert EachRound(1000).share(SENT) == pytest.approx(0.7)
    link = Link(up=1600, down=2400, latency=0.5)
    # In each of ten rounds 200 bytes up in 1 s and 300 down in 1 s, two messages of 0.5 s; 250 bytes once in 0.8333 s.
    assert Deadline(link, "slow", 100).share(SENT) == pytest.approx((10 * 3 + 8 * 250 / 2400) / 100)


def test_what_fits_is_counted_by_hand() -> None:
    """In 3 rounds of 2 clients: 6 messages up, 4 down, 5 at the end if all train once more; a hundredth is spared."""
    assert message_within(Total(15_000), 3, 2, 5, free=True) == 990
    assert message_within(Total(15_000), 3, 2, 0, free=True) == 1485
    assert message_within(Total(17_000), 3, 2, 5, free=False) == 990  # two more, in the first round
    assert message_within(EachRound(1000), 3, 2, 5, free=True) == 330  # the last round has three
    # 22 messages of 0.5 s for 6 participations in 3 rounds: 5.5 s of 99. A byte takes 24 / 1600 s up, 36 / 2400 s down.
    assert message_within(Deadline(Link(up=1600, down=2400, latency=0.5), "slow", 100), 3, 2, 5, free=True) == 3116
    assert message_within(Total(1), 3, 2, 5, free=True) == 1  # too little for anything, which its run will show


def test_a_round_with_joining_in_it_fits_too() -> None:
    """Two messages of 483 bytes and 32 for joining, where the first round has one down: 998 of 999.9."""
    assert message_within(EachRound(1010), 3, 2, 0, free=False) == 483
    assert message_within(EachRound(1010), 3, 2, 0, free=True) == 499
    assert message_within(EachRound(1010), 3, 2, 0, free=True, late=True) == 483  # who joins in the second round


def test_where_waiting_alone_takes_all_the_time_nothing_fits() -> None:
    assert message_within(Deadline(Link(up=1e6, down=1e6, latency=1e11), "slow", 10), 3, 2, 0, free=True) == 1
    assert message_within(Deadline(Link(up=1e6, down=1e6, latency=9.0), "slow", 10), 3, 2, 0, free=True) == 1


def test_what_a_client_is_sent_when_it_joins_counts_for_its_largest_round(tmp_path: Path) -> None:
    """The traffic comes from the events, if there are any; else from a usual round plus joining."""
    experiment = Experiment.parse(
        {
            **{"method": "local", "dataset": "digits", "train-limit": 150, "clients": 4, "min-size": 10, "rounds": 2},
            **{"model": {"name": "mlp", "norm": "none", "embedding": 8}, "evaluate": {"every": 9, "test-limit": 20}},
            **{"public": {"per-class": 2, "train-on": True}},
        }
    )
    finished = run(experiment, out=tmp_path / "run")
    traffic = sent_by(finished.summary, finished.folder)
    assert traffic.busiest >= traffic.once / 4 > 20 * 64  # 20 public images of 8 x 8 pixels
    assert sent_by(finished.summary, tmp_path / "gone").busiest == pytest.approx(traffic.busiest, rel=0.05)


def test_what_is_to_fit_is_given_the_bytes_of_its_schedule() -> None:
    """Clients that fine-tune get a last message: as many go down as up, else fewer by those of one round."""
    fitted = "thin.uplink-budget=fit:thin.downlink-budget=fit"
    asked = request(methods=(f"thin:finetune.epochs=3:{fitted}", f"thin:{fitted}"), limit=Total(1_000_000))
    clients, epochs = asked.experiment.clients, asked.experiment.train.local_epochs
    expected = []
    for name, fewer in (("thin:finetune.epochs=3", 0), ("thin", 1)):
        for rounds, each in ((20, epochs), (6, 3 * epochs)):
            length = 990_000 // ((2 * rounds - fewer) * clients)
            expected.append(f"{name}:thin.uplink-budget={length}:thin.downlink-budget={length} {rounds}x{each}")
    assert [one.title for one in asked.candidates] == expected


def test_what_is_to_fit_has_a_message_in_the_first_round_if_the_server_trained_before_it() -> None:
    fitted = "thin:thin.pretrain=1:thin.uplink-budget=fit:thin.downlink-budget=fit"
    asked = request(methods=(fitted,), limit=Total(1_000_000), schedules=(Schedule(20, 1),))
    assert f"uplink-budget={990_000 // (40 * asked.experiment.clients)}:" in asked.candidates[0].method


def test_what_cannot_be_made_to_fit_is_refused_and_not_among_our_own_choice() -> None:
    both = "thin:thin.uplink-budget=fit:thin.downlink-budget=fit"
    with pytest.raises(InputError, match="both budgets must have it"):
        _ = request(methods=("thin:thin.uplink-budget=fit",)).candidates
    with pytest.raises(InputError, match="does not include the bytes that a client is sent"):
        _ = request(methods=(both,), settings=("public.train-on=true",)).candidates
    handed_out = request(methods=None, settings=("public.train-on=true",))
    assert set(METHODS) - set(methods_of(handed_out)) == {name for name in METHODS if "=fit" in name}


def test_more_rounds_are_like_the_last_one() -> None:
    last = Sent(1, 2, 100, 50, 0, 4, 0, 75)
    longer = SENT.longer(30, last)
    assert (longer.up, longer.down, longer.once) == (4000 + 20 * 100, 6000 + 20 * 50, 500)
    assert (longer.participations, longer.messages, longer.joined) == (60, 120, 2)
    assert SENT.longer(30).total == 3 * 10_000 + 500
    joined = SENT.longer(30, last, joined=5)
    assert (joined.once, joined.joined) == (1250, 5)
    assert SENT.longer(30, last, joined=1).once == 500


def test_a_run_that_was_cut_short_is_projected_from_a_usual_round(tmp_path: Path) -> None:
    """Thin's first round has nothing down, its last one more bits up and a message to all who close."""
    keys: dict[str, object] = {
        **{"method": "thin", "dataset": "digits", "train-limit": 150, "clients": 4, "min-size": 10},
        **{"model": {"name": "mlp", "norm": "none", "embedding": 8}, "public": {"per-class": 2}},
        **{"evaluate": {"every": 9, "test-limit": 20}, "thin": {"last-up-bits": 4}},
    }
    sent = {}
    for rounds in (3, 7):
        experiment = Experiment.parse({**keys, "rounds": rounds})
        finished = run(experiment, out=tmp_path / str(rounds))
        cell = Trial("thin", experiment, finished.folder)
        sent[rounds] = searching.projected(cell, result_of(finished.folder, experiment, finished.summary), 7)
    assert vars(sent[3]) == pytest.approx(vars(sent[7]), rel=0.001)


def test_schedules_are_rounds_times_epochs() -> None:
    assert read_schedules("20x1, 6x3") == (Schedule(20, 1), Schedule(6, 3))
    for wrong in ("", "20", "0x1", "6x", "axb", f"1x{'9' * 5000}"):
        with pytest.raises(InputError, match="rounds x epochs"):
            read_schedules(wrong)


def methods_of(asked: Request) -> tuple[str, ...]:
    """Return the methods that are tried, as a user would type them."""
    return tuple(row.asked if row.name == row.asked else f"{row.name} = {row.asked}" for row in asked.rows)


def request(**over: object) -> Request:
    given: dict[str, object] = {
        **{"base": Base(over.pop("file", None), "quick", over.pop("settings", ("rounds=20",)))},  # type: ignore[arg-type]
        "methods": ("thin", "fedavg", "local"),
        **{"schedules": (), "limit": Total(10_000), "seeds": (0,), "protocol": "personal", "ends": 2},
        "out": Path("out"),
    }
    return Request(**{**given, **over})  # type: ignore[arg-type]


def test_a_method_that_sends_nothing_has_one_schedule() -> None:
    found = [one.title for one in request().candidates]
    epochs = request().experiment.train.local_epochs
    assert found == [
        *(f"{name} {one}" for name in ("thin", "fedavg") for one in (f"20x{epochs}", f"6x{3 * epochs}")),
        f"local 20x{epochs}",
    ]


def test_a_method_that_sends_nothing_has_the_first_of_the_named_schedules() -> None:
    named = request(schedules=(Schedule(6, 3), Schedule(20, 1)), methods=("local", "fedavg:rounds=9"))
    assert [one.title for one in named.candidates] == ["local 6x3", "fedavg 9x3"]


def test_of_our_own_choice_only_what_the_experiment_lets_is_tried() -> None:
    """Without public images nothing can be learnt from them; a method that was named is refused with a sentence."""
    usual = request(methods=None)
    assert methods_of(usual) == METHODS
    without = request(methods=None, settings=("public.per-class=0",))
    assert set(METHODS) - set(methods_of(without)) == {
        name for name in METHODS if "thin.distil=1" in name or name.split("= ")[-1].startswith(("fedmd", "feddf"))
    }
    with pytest.raises(InputError, match="public set: it must not be empty"):
        _ = request(methods=("thin:thin.distil=1",), settings=("public.per-class=0",)).experiment


def test_schedules_that_were_named_are_those_of_all_methods_of_our_own_choice() -> None:
    named = request(methods=None, schedules=(Schedule(3, 1), Schedule(2, 2)))
    assert {str(one.schedule) for one in named.candidates if one.name != "local"} == {"3x1", "2x2"}
    usual = request(methods=None, settings=("rounds=20", "train.local-epochs=1"))
    assert {one.name for one in usual.candidates if str(one.schedule) == "6x6"} >= {
        "thin distilling",
        "FedAvg in long rounds",
        "STC 5 % in long rounds",
    }


def test_of_our_own_choice_the_same_run_is_tried_once() -> None:
    """FedAvg in long rounds is FedAvg where the experiment has such rounds."""
    asked = request(methods=None, settings=("rounds=6", "train.local-epochs=6"))
    hashes = [asked.trial(one, one.schedule.rounds, 0).experiment.hash for one in asked.candidates]
    assert len({*hashes}) == len(hashes)
    assert [one.name for one in asked.candidates if one.method == "fedavg:share=full"] == ["FedAvg", "FedAvg"]


def test_by_own_accuracy_private_parts_are_tried_and_common_models_are_fine_tuned() -> None:
    by_own, by_all = (request(methods=None, protocol=protocol) for protocol in ("own", "personal"))
    assert {one.name for one in by_own.candidates} - {one.name for one in by_all.candidates} == {
        *("FedAvg + fine-tuning", "fedper", "fedrep", "fedpac", "ditto")
    }
    for asked, tuned in ((by_own, 3), (by_all, 0)):
        thin = [one for one in asked.candidates if one.method.startswith("thin")]
        assert {asked.trial(one, 6, 0).experiment.finetune.epochs for one in thin} == {tuned}
        assert {asked.epochs(one) for one in thin if str(one.schedule) == "6x6"} == {36 + tuned}
    fedrep = next(one for one in by_own.candidates if one.name == "fedrep")
    assert by_own.epochs(fedrep) > fedrep.schedule.rounds * fedrep.schedule.epochs  # its head has passes of its own


def test_of_our_own_choice_nothing_is_tried_that_a_run_would_refuse() -> None:
    asked = request(methods=None, settings=("aggregate=median",))
    assert "refprotofl" in methods_of(asked)
    assert not [name for name in methods_of(asked) if "compress.name=stc" in name]
    check(asked)


def test_a_schedule_among_a_methods_switches_is_its_only_one() -> None:
    asked = request(methods=("thin:rounds=6:thin.cooling=0.7:train.local-epochs=6", "fedavg:rounds=9"))
    epochs = request().experiment.train.local_epochs
    assert [one.title for one in asked.candidates] == ["thin:thin.cooling=0.7 6x6", f"fedavg 9x{epochs}"]
    cut = asked.trial(asked.candidates[0], 2, 0).experiment
    assert (cut.rounds, cut.train.local_epochs) == (2, 6)


def test_a_candidate_is_called_by_its_name_and_the_table_says_what_that_is() -> None:
    """One that fits has other bytes in each of its schedules."""
    methods = (
        "whole = fedavg:share=full:rounds=9",
        "fits = thin:thin.uplink-budget=fit:thin.downlink-budget=fit",
        "local",
    )
    asked = request(methods=methods, limit=Total(1_000_000))
    epochs = asked.experiment.train.local_epochs
    whole, long, short, _ = asked.candidates
    names = [f"whole 9x{epochs}", f"fits 20x{epochs}", f"fits 6x{3 * epochs}", f"local 20x{epochs}"]
    assert [one.title for one in asked.candidates] == names
    assert whole.method == "fedavg:share=full"
    assert long.method != short.method
    assert asked.trial(whole, 9, 0).name == names[0]
    found = CandidateResult(whole, 9, {0: 0.5}, SENT, 0.5)
    table = table_of(asked, Frontier((found,), found))
    assert table.rows[0][0].text == "whole"
    assert {f"{one.name}: {one.method}" for one in (whole, long, short)} <= {*table.notes}
    assert not any(note.startswith("local:") for note in table.notes)
    for repeated in (("one = thin", "one = local"), ("thin", "thin = thin:thin.up-bits=2")):
        with pytest.raises(InputError, match="named twice"):
            check(request(methods=repeated))


def test_candidates_are_paired_with_the_best_where_there_are_seeds() -> None:
    """Differences of 1 and 3 points: 12.706 x 1.4142 / sqrt 2 = 12.71."""
    asked = request(seeds=(0, 1))
    sent = Sent(10, 20, 100, 0, 0, 40, 2, 100)
    best = CandidateResult(Candidate("fedavg", "fedavg", Schedule(10, 1)), 10, {0: 0.8, 1: 0.9}, sent, 0.5)
    other = CandidateResult(Candidate("thin", "thin", Schedule(10, 1)), 10, {0: 0.79, 1: 0.87}, sent, 0.5)
    cut = CandidateResult(Candidate("local", "local", Schedule(10, 1)), 2, {0: 0.1, 1: 0.1}, sent, 0.5)
    table = table_of(asked, Frontier((best, other, cut), best))
    place = table.headings.index("difference to the best")
    assert [row[place].text for row in table.rows] == ["-", "-2.00 ± 12.71", "-"]
    assert "difference to the best" not in table_of(request(), Frontier((best,), best)).headings


def test_a_rung_continues_a_third_but_never_fewer_than_are_to_end() -> None:
    schedules = tuple(Schedule(18, one) for one in range(1, 6))
    many = request(schedules=schedules, methods=("thin", "fedavg"))
    assert plan(many) == [(pytest.approx(1 / 9), 3), (pytest.approx(1 / 3), 2), (1.0, 10)]
    assert [count for _, count in plan(request(schedules=schedules, methods=("thin", "fedavg"), ends=5))][:2] == [5, 5]


Score = Callable[[Candidate, int], CandidateResult]


def rungs_of(
    asked: Request, monkeypatch: pytest.MonkeyPatch, score: Score
) -> tuple[list[list[tuple[str, int]]], Frontier]:
    """Return the rounds of each candidate rung by rung, and what is found, without running anything."""
    ran: list[list[tuple[str, int]]] = []

    def scored(_: Request, one: Candidate, rounds: int, *others: object) -> CandidateResult:
        ran[-1].append((one.name, rounds))
        return score(one, rounds)

    monkeypatch.setattr(searching, "candidate_result", scored)
    study = frontier(asked)
    next(study)
    while True:
        ran.append([])
        try:
            study.send(Outcomes({}, {}))
        except StopIteration as ended:
            return ran, ended.value


def test_a_method_that_restarts_skips_rungs_and_one_that_sends_too_much_is_out_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = request(methods=("thin", "fedavg", "local"), schedules=(Schedule(18, 1),), ends=3)

    def score(one: Candidate, rounds: int) -> CandidateResult:
        return CandidateResult(one, rounds, {0: 0.5}, SENT, 2.0 if one.name == "fedavg" else 0.5)

    ran, found = rungs_of(asked, monkeypatch, score)
    assert ran == [[("fedavg", 6), ("local", 6)], [("thin", 18), ("local", 18)]]
    assert {one.candidate.name: one.rounds for one in found.tried} == {"thin": 18, "local": 18, "fedavg": 6}
    ran, _ = rungs_of(replace(asked, ends=1), monkeypatch, score)
    assert ran[0] == [("thin", 6), ("fedavg", 6), ("local", 6)]


def test_candidates_within_the_limit_continue_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(methods=("fedavg", "fedproto", "fedgh"), schedules=(Schedule(18, 1),), ends=1)

    def score(one: Candidate, rounds: int) -> CandidateResult:
        beyond = one.name == "fedavg"
        return CandidateResult(one, rounds, {0: 0.9 if beyond else 0.5}, SENT, 1.1 if beyond else 0.9)

    ran, found = rungs_of(asked, monkeypatch, score)
    assert ran == [[("fedavg", 6), ("fedproto", 6), ("fedgh", 6)], [("fedproto", 18)]]
    assert found.winner is not None


def test_candidates_that_would_be_called_alike_are_refused() -> None:
    with pytest.raises(InputError, match=r"have the same name, thin 6x"):
        check(request(methods=("thin:rounds=6", "thin = fedavg:share=full:rounds=6")))


def test_the_winners_command_says_each_key_once_and_where_data_lie(tmp_path: Path) -> None:
    file = tmp_path / "my data.toml"
    file.touch()
    asked = request(settings=("rounds=20", "train.lr=0.1", "seed=3"), file=file)
    words = asked.command(Candidate("whole", "fedavg:share=full", Schedule(6, 3)), Path("here"))
    assert words[:7] == ["refprotofl", "run", str(file), "--preset", "quick", "--data", "here"]
    assert words[8::2] == ["train.lr=0.1", "method=fedavg", "share=full", "rounds=6", "train.local-epochs=3"]


def test_the_winners_command_scores_the_test_set_whatever_the_file_holds_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("validation = 0.2\n")
    words = request(file=file).command(Candidate("whole", "fedavg", Schedule(6, 3)), None)
    assert words[-1] == "validation=0"
    assert request(file=file).searched.validation == 0.2
    assert request().searched.validation == 0.1


def test_runs_that_continue_share_a_folder_unless_the_method_depends_on_rounds() -> None:
    thin, fedavg = request().candidates[0], request().candidates[2]
    assert request().trial(fedavg, 3, 0).folder == request().trial(fedavg, 20, 0).folder
    assert request().trial(thin, 3, 0).folder != request().trial(thin, 20, 0).folder
    assert request().trial(thin, 3, 0).experiment.validation == 0.1
