"""Random plans: hardware, model, traffic and health are drawn, and a cause of a random size is planted."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from simulator.gpus import A100, H100, H200, L40S, Gpu
from simulator.nets import LLAMA_8B, LLAMA_70B, MISTRAL_7B, MIXTRAL, Net
from simulator.physics import Work
from simulator.plan import (
    Causes,
    CommunicationKind,
    Flavour,
    Health,
    IdleKind,
    Plan,
    Planted,
    SlowKind,
    Traffic,
)
from simulator.timing import Timer

#: How often each cause is drawn.
WEIGHTS: Final[dict[Planted, int]] = {
    "A": 8, "B": 7, "C": 15, "D": 15, "F": 15, "E cache": 6, "E slots": 6, "E compute": 6, "G": 6, "none": 7,
    "CD": 3, "CF": 3, "DF": 3,
}  # fmt: skip
FLAVOURS: Final[dict[Flavour, int]] = {
    "vllm 0.25": 5, "vllm 0.8.5": 3, "sglang 0.5.20": 3, "sglang 0.4.8": 1, "trtllm 1.2": 1,
}  # fmt: skip
#: What is planted in a part of the windows in place of what was drawn, and how often.
MORE: Final[dict[Planted, int]] = {"late work": 4, "late host": 3, "clock thermal": 3, "clock power": 1, "hidden": 4}
MORE_OFTEN, EIGHT_BIT_OFTEN, LLAMACPP_OFTEN = 0.2, 0.2, 0.12
COMMUNICATION_KINDS: Final[tuple[CommunicationKind, ...]] = ("latency", "bandwidth")
IDLE_KINDS: Final[tuple[IdleKind, ...]] = ("within", "between")
SLOW_KINDS: Final[tuple[SlowKind, ...]] = ("few multiprocessors", "all multiprocessors")
#: Models and degrees of tensor parallelism that a GPU's memory and links go with.
PLACES: Final[tuple[tuple[Gpu, Net, int], ...]] = (
    *((gpu, net, split) for gpu in (H100, H200, A100) for net in (LLAMA_8B, MISTRAL_7B) for split in (1, 1, 2)),
    *((gpu, LLAMA_70B, split) for gpu in (H100, A100) for split in (4, 4, 8)),
    *((H200, LLAMA_70B, split) for split in (2, 4)),
    *((gpu, MIXTRAL, split) for gpu in (H100, H200, A100) for split in (2, 4)),
    *((L40S, net, split) for net in (LLAMA_8B, MISTRAL_7B) for split in (1, 2)),
)
#: Steps and seconds of a load: enough to measure, few enough to simulate thousands of windows.
STEPS: Final = (250, 500)
LEAST_SECONDS: Final = 7.0


@dataclass(frozen=True)
class Drawn:
    """A plan, and the step by which the sizes of its causes are measured."""

    plan: Plan
    typical: Work


def draw(seed: int) -> Drawn:
    """The plan of a number."""
    random_ = random.Random(seed)
    planted = random_.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
    # Of numbers of their own, so that all other windows stay what they were.
    more = random.Random(f"{seed} more")
    if more.random() < MORE_OFTEN:
        planted = more.choices([*MORE], [*MORE.values()])[0]
    communicates = "C" in planted or planted == "hidden" or planted.startswith("late")
    places = [place for place in PLACES if place[2] > 1] if communicates else PLACES
    gpu, net, split = random_.choice(places)
    plan = Plan(
        seed=seed,
        planted=planted,
        gpu=gpu,
        net=net,
        split=split,
        traffic=Traffic(128, 256, 1),
        health=_health(random_, gpu),
        noise=random_.uniform(0.01, 0.05),
        interval=random_.choice((0.5, 1.0)),
        flavour=random_.choices([*FLAVOURS], [*FLAVOURS.values()])[0],
        front_end=random_.uniform(0.002, 0.03),
        profiler=random_.choice(("kineto", "kineto", "nsys")),
        frame=random_.choice(("whole", "steady")),
        traced_ranks=random_.choice((0, 0, 0, 0, 2)),
        causes=_causes(random_, planted) if planted not in MORE else _more_causes(more, planted),
    )
    if split == 1 and more.random() < LLAMACPP_OFTEN:
        plan = replace(plan, flavour="llama.cpp")
    if gpu.flops_8bit and more.random() < EIGHT_BIT_OFTEN:
        health = replace(plan.health, reach_compute=more.uniform(*gpu.reach_8bit))
        plan = replace(
            plan, net=replace(net, matrix_bytes=1.0, cache_bytes=more.choice((1.0, 2.0))), health=health
        )  # fmt: skip
    plan = replace(plan, separate=plan.flavour.startswith("sglang"))
    if planted == "B" or planted.startswith("clock") or (planted in ("C", "D", "F") and random_.random() < 0.2):
        return _prefill(plan, random_)
    if planted.startswith("E"):
        return _saturated(plan, random_)
    return _little(plan, random_) if planted == "G" else _decode(plan, random_)


def _health(random_: random.Random, gpu: Gpu) -> Health:
    return Health(
        reach_memory=random_.uniform(*gpu.reach_memory),
        reach_compute=random_.uniform(*gpu.reach_compute),
        reach_attention=random_.uniform(0.5, 0.65),
        small=random_.uniform(0.0, 0.04),
        latency=random_.uniform(20e-6, 35e-6) if gpu.pcie else random_.uniform(5e-6, 10e-6),
        link=random_.uniform(0.65, 0.85),
        between=random_.uniform(0.0, 0.03),
        skew=random_.uniform(0.002, 0.015),
    )


def _causes(random_: random.Random, planted: Planted) -> Causes:
    letters = planted if set(planted) <= set("CDF") else ""
    # A single cause has any size; two together leave room for each other.
    ends = (0.05, 0.65) if len(letters) == 1 else (0.12, 0.35)
    sizes = {letter: random_.uniform(*ends) for letter in letters}
    return Causes(
        communication=sizes.get("C", 0.0),
        idle=sizes.get("D", 0.0),
        slow=sizes.get("F", 0.0),
        communication_kind=random_.choice(COMMUNICATION_KINDS),
        idle_kind=random_.choice(IDLE_KINDS),
        slow_kind=random_.choice(SLOW_KINDS),
    )


def _more_causes(random_: random.Random, planted: Planted) -> Causes:
    if planted == "hidden":
        return Causes(hidden=random_.uniform(0.2, 0.95))
    if planted.startswith("clock"):
        # Heat halves a clock, a power cap takes some of it.
        thermal = planted == "clock thermal"
        clock = random_.uniform(0.45, 0.9) if thermal else random_.uniform(0.75, 0.95)
        return Causes(clock=clock, clock_cause="thermal" if thermal else "power")
    return Causes(late=random_.uniform(0.05, 0.6), late_kind="work" if planted == "late work" else "host")


def _room(plan: Plan) -> int:
    """Tokens that the cache holds: nine tenths of the memory, less weights."""
    room = 0.9 * plan.gpu.memory * plan.split - plan.net.stored_bytes
    return int(room / plan.net.kv_bytes)


def _decode(plan: Plan, random_: random.Random) -> Drawn:
    """Long answers to short prompts, so that memory binds."""
    drafted = random_.choice((0, 0, 0, 0, 3)) if plan.flavour.startswith("vllm") else 0
    acceptance = random_.uniform(0.5, 0.8)
    batch = random_.choice((4, 8, 12, 16, 24, 32, 48) if not drafted else (2, 4, 8))
    prompt, output = random_.choice((32, 64, 128, 128, 384)), random_.choice((128, 192, 256))
    batch = min(batch, int(_room(plan) * 0.7 / (prompt + output) / 1.3))
    typical = Work(batch, batch * (prompt + output / 2), drafted)
    step = _step_seconds(plan, typical)
    emitted = sum(acceptance**power for power in range(drafted + 1)) if drafted else 1.0
    steps = max(random_.uniform(*STEPS), LEAST_SECONDS / step)
    steps = max(steps, 2.5 * output / emitted)
    requests = max(2 * batch, round(steps * batch * emitted / output))
    traffic = Traffic(
        prompt, output, requests, spread=random_.choice((0.0, 0.1, 0.3)), hits=random_.choice((0.0, 0.0, 0.8)),
        hit_share=0.5,
    )  # fmt: skip
    if random_.random() < 0.7:
        traffic = replace(traffic, clients=batch)
    else:  # so many are there at once, on average
        traffic = replace(traffic, rate=batch / (output / emitted * step))
    return Drawn(
        replace(
            plan, traffic=traffic, drafted=drafted, acceptance=acceptance if drafted else 0.0, cache=_room(plan),
            with_client=bool(traffic.clients) and plan.frame == "whole" and random_.random() < 0.3,
        ),
        typical,
    )  # fmt: skip


def _prefill(plan: Plan, random_: random.Random) -> Drawn:
    """Long prompts of which one token is asked."""
    prompt = random_.choice((1024, 2048, 4096))
    budget = random_.choice((2048, 4096, 8192))
    typical = Work(chunks=((min(budget, prompt), 0),) * max(1, budget // prompt), ending=1)
    step = _step_seconds(plan, typical)
    seconds = max(LEAST_SECONDS, random_.uniform(60, 150) * step)
    requests = max(24, round(seconds / step * typical.tokens / prompt))
    traffic = Traffic(prompt, 1, requests, clients=random_.choice((8, 16, 32)), spread=random_.choice((0.0, 0.2)))
    return Drawn(replace(plan, traffic=traffic, budget=budget, cache=_room(plan)), typical)


def _saturated(plan: Plan, random_: random.Random) -> Drawn:
    """More requests than the cache, the slots or the budget hold."""
    drawn = _decode(replace(plan, frame=random_.choice(("whole", "steady"))), random_)
    traffic = drawn.plan.traffic
    batch = drawn.typical.decodes
    if plan.planted == "E compute":
        prompt, output = random_.choice((1024, 2048)), random_.choice((8, 16))
        typical = Work(chunks=((2048, 0),), ending=1)
        step = _step_seconds(plan, typical)
        seconds = max(LEAST_SECONDS, 80 * step)
        clients = random_.choice((48, 96))
        traffic = Traffic(prompt, output, max(3 * clients, round(seconds / step * 2048 / prompt)), clients=clients)
        return Drawn(replace(plan, traffic=traffic, cache=_room(plan)), typical)
    clients = round(batch * random_.uniform(2.5, 5))
    traffic = replace(traffic, clients=clients, rate=0.0, hits=0.0, requests=max(traffic.requests, 3 * clients))
    if plan.planted == "E slots":
        changed = replace(drawn.plan, traffic=traffic, slots=batch, with_client=False)
    else:
        cache = round(batch * (traffic.prompt + 0.6 * traffic.output))
        changed = replace(drawn.plan, traffic=traffic, cache=max(cache, 2 * (traffic.prompt + traffic.output)))
    return Drawn(replace(changed, with_client=False, drafted=0, acceptance=0.0), replace(drawn.typical, drafted=0))


def _little(plan: Plan, random_: random.Random) -> Drawn:
    """A request now and then."""
    prompt, output = random_.choice((64, 256)), random_.choice((64, 128))
    typical = Work(1, prompt + output / 2)
    each = output * _step_seconds(plan, typical)
    load = random_.uniform(0.05, 0.3)
    requests = random_.randint(12, 30)
    traffic = Traffic(prompt, output, requests, rate=load / each)
    return Drawn(replace(plan, traffic=traffic, cache=_room(plan), frame="whole"), typical)


def _step_seconds(plan: Plan, typical: Work) -> float:
    return Timer(plan, typical).time(typical, random.Random(0)).total
