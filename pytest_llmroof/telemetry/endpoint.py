"""An address that answers with metrics: what is needed to ask it, and what of it may be shown."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from pytest_llmroof.errors import ConfigError


@dataclass(frozen=True)
class Endpoint:
    """One server to scrape. ``shown`` and ``slug`` are free of secrets; everything that may hold one has no repr.

    ``address`` is the one IP address to ask, where the host's name stands for several. ``verify`` and ``cert`` are
    what requests takes: whether (or with which CA bundle) TLS certificates are checked, and the client's own.
    ``token_file`` is read at every scrape, as tokens are rotated.
    """

    url: str = field(repr=False)
    shown: str
    slug: str
    address: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    token_file: Path | None = field(default=None, repr=False)
    verify: bool | str = field(default=True, repr=False)
    cert: str | tuple[str, str] | None = field(default=None, repr=False)
    timeout_seconds: float = 10.0


def endpoints_of(
    urls: Iterable[str],
    *,
    headers: Mapping[str, str] | None = None,
    token_file: Path | None = None,
    verify: bool | str = True,
    cert: str | tuple[str, str] | None = None,
    timeout_seconds: float = 10.0,
) -> tuple[Endpoint, ...]:
    """The endpoints behind ``urls``, which may hold user and password: one for each address a host's name resolves to.

    Asks the resolver, once: endpoints that appear later are not seen. ConfigError for what is no http(s) URL.
    """
    found = [each for url in dict.fromkeys(urls) for each in _expanded(_endpoint(url))]
    return tuple(
        replace(
            each, slug=slug, headers=headers or {}, token_file=token_file, verify=verify, cert=cert,
            timeout_seconds=timeout_seconds,
        )
        for each, slug in zip(found, _distinct([each.slug for each in found]), strict=True)
    )  # fmt: skip


def endpoint_of(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    token_file: Path | None = None,
    verify: bool | str = True,
    cert: str | tuple[str, str] | None = None,
    timeout_seconds: float = 10.0,
) -> Endpoint:
    """The one endpoint at ``url``, whichever of its host's addresses answers. ConfigError for what is no URL."""
    return replace(
        _endpoint(url), headers=headers or {}, token_file=token_file, verify=verify, cert=cert,
        timeout_seconds=timeout_seconds,
    )  # fmt: skip


def distinct(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints with a slug of its own for each, where they come from several sources."""
    found = list(endpoints)
    slugs = _distinct([each.slug for each in found])
    return tuple(replace(each, slug=slug) for each, slug in zip(found, slugs, strict=True))


def shown_url(url: str) -> str:
    """What may be shown of a URL: without user, password, query and fragment, any of which may be a secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=_netloc(parts), query="", fragment="").geturl()


def _endpoint(url: str) -> Endpoint:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise ConfigError("a URL cannot be understood: its host or port is not valid") from None
    if parts.scheme not in ("http", "https"):
        # "localhost:8000/metrics" has the scheme "localhost"; what follows "@" cannot be a secret.
        rest = url.strip().rpartition("@")[2].partition("?")[0]
        hint = f"; write http://{rest}" if "://" not in rest else ""
        raise ConfigError(f"{rest!r} is not an http:// or https:// URL{hint}")
    if not parts.hostname:
        raise ConfigError(f"the URL {shown_url(url)!r} names no host")
    credentials = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    bare = parts._replace(netloc=_netloc(parts), fragment="")
    place = f"{parts.hostname}-{port or {'http': 80, 'https': 443}[parts.scheme]}{parts.path}"
    return Endpoint(bare.geturl(), shown_url(url.strip()), _slug(place), credentials=credentials)


def _netloc(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _expanded(endpoint: Endpoint) -> list[Endpoint]:
    """One endpoint for each address of its host, where there are several and no proxy resolves the name instead."""
    # Here, so that windows of files do not pay for an HTTP client.
    from requests.utils import get_environ_proxies, select_proxy

    parts = urlsplit(endpoint.url)
    proxies = get_environ_proxies(endpoint.url)
    if select_proxy(endpoint.url, proxies):
        return [endpoint]
    try:
        answers = socket.getaddrinfo(parts.hostname, parts.port or parts.scheme, type=socket.SOCK_STREAM)
    except OSError:
        return [endpoint]  # The scrape will say that the name does not resolve.
    # The IPv4 and the IPv6 address of one host are one server ("localhost"): only several of a family are several.
    families: dict[int, list[str]] = {}
    for family, _, _, _, address in answers:
        families.setdefault(family, []).append(str(address[0]))
    addresses = list(dict.fromkeys(families.get(socket.AF_INET) or families.get(socket.AF_INET6, [])))
    if len(addresses) < 2:
        return [endpoint]
    return [
        replace(endpoint, address=each, shown=f"{endpoint.shown} at {each}", slug=_slug(f"{endpoint.slug}-{each}"))
        for each in sorted(addresses)
    ]


def _slug(place: str) -> str:
    """A file name that a person can still read: no separators, blanks or leading dots, 100 characters at most."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", place).strip("-.")[:100]


def _distinct(slugs: list[str]) -> list[str]:
    """Every slug once, also where file names ignore case: a second one of the same name gets ``-2``."""
    names: list[str] = []
    taken: set[str] = set()
    for slug in slugs:
        name, count = slug, 1
        while name.casefold() in taken:
            count += 1
            name = f"{slug}-{count}"
        taken.add(name.casefold())
        names.append(name)
    return names
