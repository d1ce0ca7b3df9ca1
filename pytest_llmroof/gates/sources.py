"""Telemetry as a user names it: a path, a URL, a mapping, or a list of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.spec import TelemetrySource
from pytest_llmroof.units import UnitError, parse_as, parse_quantity

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: Unix seconds of the year 5138, and twenty years: what lies beyond is no time that a server was scraped at.
_LATEST_SECONDS: Final = 1e11
_LONGEST_AGO_SECONDS: Final = 20 * 365 * 86_400.0
#: Bytes that file systems take, of a path and of a name in it.
_LONGEST_PATH: Final = 4095
_LONGEST_NAME: Final = 255
#: Options that hold a duration, and those that name files.
_DURATIONS: Final = ("timeout", "duration")
_FILES: Final = ("token_file", "verify", "cert")


def telemetry_source(value: object, base: Path) -> TelemetrySource:
    """One source of the shape that the schema allows. ConfigError says what is wrong, without any secret.

    Options of a mapping come with durations in seconds and files as absolute paths; ``end`` stays text.
    """
    if isinstance(value, str):
        return _url({"url": value}, "url", base) if _SCHEME.match(value) else _path(value, base)
    if isinstance(value, Mapping):
        return _url(value, "url" if "url" in value else "prometheus", base)
    raise ConfigError("expected a path, a URL or a mapping")


def path_from(base: Path, written: str) -> Path:
    """A path as a user wrote it, seen from ``base``. ConfigError where no file can be called so."""
    try:
        path = base / Path(written).expanduser()
        name = os.fsencode(path)
    except (RuntimeError, ValueError):  # the home of nobody; half of a character
        raise ConfigError("no file can be called so") from None
    if b"\0" in name or len(name) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in name.split(b"/")):
        raise ConfigError("no file can be called so")
    return path


def there(path: Path) -> bool:
    """Whether there is something, which may turn out to be unreadable."""
    try:
        return path.exists()
    except OSError:
        return True


def _path(written: str, base: Path) -> TelemetrySource:
    absolute = Path(os.path.normpath(path_from(base, written)))
    path = Path(written).expanduser()
    return TelemetrySource("path", shown_path(path, absolute, base), absolute)


def shown_path(path: Path, absolute: Path, base: Path) -> str:
    """How a path is printed: as written where it is relative, else from ``base``, else its name alone."""
    if not path.is_absolute():
        return path.as_posix()
    return absolute.relative_to(base).as_posix() if absolute.is_relative_to(base) else absolute.name


def _url(mapping: Mapping[str, object], key: str, base: Path) -> TelemetrySource:
    url = str(mapping[key])
    shown = shown_url(url)
    options = {name: _option(name, value, base) for name, value in mapping.items()}
    return TelemetrySource("url" if key == "url" else "prometheus", shown, None, options)


def shown_url(url: str) -> str:
    """A URL without user, password, query and fragment. ConfigError where it is none of http or https."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("not a URL: expected http://HOST:PORT/PATH") from None
    if parts.scheme not in ("http", "https"):
        scheme = f"{parts.scheme}://" if _SCHEME.match(url) else "none"
        raise ConfigError(f"expected a URL that starts with http:// or https://, found {scheme}")
    if not host or any(character.isspace() or not character.isprintable() for character in url):
        raise ConfigError("not a URL: expected http://HOST:PORT/PATH")
    address = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{address}:{port}" if port is not None else address, parts.path, "", ""))


def _option(name: str, value: object, base: Path) -> object:
    if name in _DURATIONS:
        return parse_as(value, "seconds")
    if name in _FILES and isinstance(value, str):
        return path_from(base, value)
    if name in _FILES and isinstance(value, list):
        return tuple(path_from(base, str(entry)) for entry in value)
    return value


def check_source(text: str) -> None:
    """A path, or a URL of a scheme that can be read; ConfigError otherwise."""
    if _SCHEME.match(text):
        shown_url(text)
    elif not text.isprintable():
        raise ConfigError("a path must not hold control characters")


def check_end(text: str) -> None:
    """``now``, ``now-24h``, Unix seconds, or RFC 3339 with a zone; ConfigError otherwise."""
    if text == "now":
        return
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        if not float(text) < _LATEST_SECONDS:
            raise ConfigError("not a time: Unix seconds have eleven digits at most")
        return
    if text.startswith("now-"):
        try:
            ago = parse_quantity(text.removeprefix("now-"))
        except UnitError as error:
            raise ConfigError(f"after 'now-': {error}") from None
        if ago.unit != "seconds" or not 0 <= ago.value < _LONGEST_AGO_SECONDS:
            raise ConfigError("expected a duration after 'now-', like now-24h")
        return
    if not re.match(r"[0-9]{4}-", text):
        raise ConfigError("expected now, now-24h, RFC 3339 with a zone, or Unix seconds")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("not a time: expected RFC 3339 with a zone, like 2026-11-29T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ConfigError("a time zone is missing: write Z at its end, or an offset like +01:00")
