"""A model of which a user gave the figures by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models.costed import Product, WeightPart
from pytest_llmroof.roofline.models.mixers import GivenCache
from pytest_llmroof.units import Unit, UnitError, parse_as

KEYS = (
    "name", "parameters", "active_parameters", "matmul_parameters", "weight_bytes", "kv_bytes_per_token",
    "layers", "hidden_size", "experts", "experts_per_token",
)  # fmt: skip
_WHOLE = ("layers", "hidden_size", "experts", "experts_per_token")
_UNITS: Mapping[str, Unit] = {"weight_bytes": "bytes", "kv_bytes_per_token": "bytes"}


@dataclass(frozen=True)
class Figures:
    """Figures of a model. What is not given is not counted: attention scores never, the cache where its size is not
    known; a step of a dense model reads all of its weights, and every active parameter takes part in a matrix product
    unless ``matmul_parameters`` are given.

    Where fewer parameters are active than there are, the rest are experts: ``experts`` and ``experts_per_token`` as
    given, else a token is taken to pass through its active share of all weights, wherever they are.
    """

    name: str
    parameters: float
    active_parameters: float
    matmul_parameters: float
    given_weight_bytes: float | None = None
    given_kv_bytes_per_token: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    experts: int = 0
    experts_per_token: int = 0

    @property
    def title(self) -> str:
        """As the user called it."""
        return self.name

    @property
    def attention_heads(self) -> int | None:
        """Not known."""
        return None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Not known."""
        return ()

    @property
    def body_parameters(self) -> float:
        """All that take part in matrix products: no head is told apart."""
        return self.matmul_parameters

    @property
    def products(self) -> tuple[Product, ...]:
        """One, which any number of ranks can share."""
        return (Product(self.matmul_parameters),)

    @property
    def head_parameters(self) -> float:
        """None is told apart."""
        return 0.0

    @property
    def mixers(self) -> tuple[GivenCache, ...]:
        """The cache, where its size was given."""
        given = self.given_kv_bytes_per_token
        return () if given is None else (GivenCache(given),)

    def weight_bytes(self, weights: str) -> float:
        """As given, else all parameters at the precision."""
        given = self.given_weight_bytes
        return self.parameters * ELEMENT_BYTES[weights] if given is None else given

    def kv_bytes_per_token(self, kv_cache: str) -> float:
        """As given, whatever the precision; 0 where nothing is known of the cache."""
        return self.given_kv_bytes_per_token or 0.0

    def stages(self, number: int) -> tuple[Figures, ...]:
        """Even ones: nothing is known of the layers."""
        given = (self.given_weight_bytes, self.given_kv_bytes_per_token)
        size, cache = (None if each is None else each / number for each in given)
        stage = replace(
            self,
            parameters=self.parameters / number,
            active_parameters=self.active_parameters / number,
            matmul_parameters=self.matmul_parameters / number,
            given_weight_bytes=size,
            given_kv_bytes_per_token=cache,
        )
        return (stage,) * number

    def parts(self, weights: str) -> tuple[WeightPart, ...]:
        """A dense model is read whole; of a sparse one its shared weights, and of its experts those routed to."""
        size = self.weight_bytes(weights)
        share = self.active_parameters / self.parameters
        if share == 1:
            return (WeightPart("always", size),)
        if not self.experts:
            return (WeightPart("expert", size, experts=1.0, active=share),)
        # P = shared + routed and P_a = shared + routed k / E
        routed = (1 - share) / (1 - self.experts_per_token / self.experts)
        mixture = WeightPart("expert", routed * size, experts=self.experts, active=self.experts_per_token)
        return (WeightPart("always", (1 - routed) * size), mixture)


def model_from_mapping(
    mapping: Mapping[str, object], position: Callable[[str], Position | None] = lambda key: None
) -> Figures:
    """A model as a user gives its figures; ``position`` tells where a key stands. ConfigError for all that is wrong."""
    return _Reading(mapping, position).read()


class _Reading:
    """Reads one mapping, collecting every problem before it gives up."""

    def __init__(self, mapping: Mapping[str, object], position: Callable[[str], Position | None]) -> None:
        self.mapping = mapping
        self.position = position
        self.errors: list[ConfigError] = []

    def read(self) -> Figures:
        """The model; ConfigError, or ConfigErrors for several."""
        for key in self.mapping:
            if key not in KEYS:
                near = did_you_mean(str(key), KEYS) or f"; a model's figures are {', '.join(KEYS)}"
                self.wrong(str(key), f"unknown key {str(key)!r} of a model{near}")
        parameters = self.number("parameters")
        if "parameters" not in self.mapping:
            self.wrong("", "a model given by its figures needs `parameters` (like 8.03e9)")
        active = self.number("active_parameters") or parameters
        matmul = self.number("matmul_parameters") or active
        size, cache = self.number("weight_bytes"), self.number("kv_bytes_per_token", zero=True)
        whole = {key: self.whole(key) for key in _WHOLE}
        self.consistent(parameters, active, whole["experts"], whole["experts_per_token"])
        if matmul is not None and active is not None and matmul > active:
            self.wrong("matmul_parameters", f"matmul_parameters {matmul:g} exceed the active parameters {active:g}")
        if self.errors or parameters is None or active is None or matmul is None:
            raise self.errors[0] if len(self.errors) == 1 else ConfigErrors(self.errors)
        return Figures(
            name=self.name(parameters),
            parameters=parameters,
            active_parameters=active,
            matmul_parameters=matmul,
            given_weight_bytes=size,
            given_kv_bytes_per_token=cache,
            layers=whole["layers"],
            hidden_size=whole["hidden_size"],
            experts=whole["experts"] or 0,
            experts_per_token=whole["experts_per_token"] or 0,
        )

    def consistent(self, total: float | None, active: float | None, experts: int | None, routed: int | None) -> None:
        """What the figures must agree on."""
        if total is not None and active is not None and active > total:
            self.wrong("active_parameters", f"active_parameters {active:g} exceed parameters {total:g}")
        if (experts is None) != (routed is None):
            self.wrong("experts", "experts and experts_per_token are given together")
        elif experts is not None and routed is not None and total is not None and active is not None:
            if routed > experts or (routed == experts and experts):
                self.wrong("experts_per_token", f"experts_per_token {routed} are not fewer than experts {experts}")
            elif experts and active < total * routed / experts:
                self.wrong("active_parameters", "active_parameters are fewer than those of a token's experts alone")

    def name(self, parameters: float) -> str:
        """What reports call it: the name given, else its size (``70B parameters``)."""
        name = self.mapping.get("name")
        return name if isinstance(name, str) and name.strip() else f"{parameters / 1e9:.4g}B parameters"

    def number(self, key: str, zero: bool = False) -> float | None:
        """A positive number (or size), None where it is not given or noted as wrong."""
        if self.mapping.get(key) is None:
            if key in self.mapping:
                self.wrong(key, f"{key}: no value (leave out what is not known)")
            return None
        try:
            value = parse_as(self.mapping[key], _UNITS.get(key, "count"))
        except UnitError as error:
            self.wrong(key, f"{key}: {error}")
            return None
        if value < 0 or (value == 0 and not zero):
            self.wrong(key, f"{key}: must be more than zero (leave out what is not known)")
            return None
        return value

    def whole(self, key: str) -> int | None:
        """A positive whole number, None where it is not given or noted as wrong."""
        value = self.number(key, zero=key.startswith("experts"))
        if value is not None and value != int(value):
            self.wrong(key, f"{key}: a whole number is expected, not {value:g}")
            return None
        return None if value is None else int(value)

    def wrong(self, key: str, problem: str) -> None:
        """Note a problem at a key's place, or where the model stands."""
        self.errors.append(ConfigError(problem, self.position(key) or self.position("")))
