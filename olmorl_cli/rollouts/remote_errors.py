"""What goes wrong behind a URI, in a few words of ours: the packages that ask over the network have hundreds."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from olmorl_cli.errors import InputError, without_secrets


@dataclass(frozen=True)
class Failure:
    """One way to fail.

    Attributes:
        what: happened.
        action: what to do about it.
        passing: it may go better at another try.
    """

    what: str
    action: str
    passing: bool = False


class RemoteError(InputError):
    """A file or folder behind a URI that could not be found or read."""

    def __init__(self, name: str, failure: Failure) -> None:
        super().__init__(f"{name}: {failure.what}. {failure.action}")
        self.failure = failure


NOT_FOUND = Failure("no such file or folder", "Check the URI")
DENIED = Failure("access is denied", "Check the credentials, and what they allow")
NO_CREDENTIALS = Failure("no usable credentials are in the environment", "Set them; for open data on S3, FSSPEC_S3_ANON=1")
NO_ANSWER = Failure("no answer in time", "Check the host and the network, or try again", passing=True)
NO_CONNECTION = Failure("no connection", "Check the host and the network", passing=True)
BROKEN_OFF = Failure("the connection broke off", "Check the network, or try again", passing=True)
BUSY = Failure("the server cannot answer now", "Try again later", passing=True)
NOT_TRUSTED = Failure("the host's certificate is not trusted", "Check the host, or the certificates of this machine")
REPLACED = Failure("it was replaced while it was read", "Read it again")

_BY_NAME = {
    "FileNotFoundError": NOT_FOUND,
    "EntryNotFoundError": NOT_FOUND,
    "RepositoryNotFoundError": NOT_FOUND,
    "PermissionError": DENIED,
    "GatedRepoError": DENIED,
    "NoCredentialsError": NO_CREDENTIALS,
    "PartialCredentialsError": NO_CREDENTIALS,
    "CredentialRetrievalError": NO_CREDENTIALS,
    "TokenRetrievalError": NO_CREDENTIALS,
    "ProfileNotFound": NO_CREDENTIALS,
    "GoogleAuthError": NO_CREDENTIALS,
    "TimeoutError": NO_ANSWER,
    "ConnectTimeoutError": NO_ANSWER,
    "ReadTimeoutError": NO_ANSWER,
    "ServerTimeoutError": NO_ANSWER,
    "TimeoutException": NO_ANSWER,
    "Timeout": NO_ANSWER,
    "ClientConnectorCertificateError": NOT_TRUSTED,
    "ClientConnectorSSLError": NOT_TRUSTED,
    "SSLError": NOT_TRUSTED,
    "ClientPayloadError": BROKEN_OFF,
    "ServerDisconnectedError": BROKEN_OFF,
    "IncompleteRead": BROKEN_OFF,
    "IncompleteReadError": BROKEN_OFF,
    "ResponseStreamingError": BROKEN_OFF,
    "RemoteProtocolError": BROKEN_OFF,
    "ReadError": BROKEN_OFF,
    "ChunkedEncodingError": BROKEN_OFF,
    "ConnectionClosedError": BROKEN_OFF,
    "ConnectionResetError": BROKEN_OFF,
    "BrokenPipeError": BROKEN_OFF,
    "ClientConnectorError": NO_CONNECTION,
    "EndpointConnectionError": NO_CONNECTION,
    "ProxyConnectionError": NO_CONNECTION,
    "ConnectError": NO_CONNECTION,
    "ConnectionError": NO_CONNECTION,
    "gaierror": NO_CONNECTION,
    "ClientConnectionError": BROKEN_OFF,
    "FileExpired": REPLACED,
}
"""By the names of exception classes and of those that they are made from: their packages may not be installed."""

_BY_STATUS = {
    401: DENIED,
    403: DENIED,
    404: NOT_FOUND,
    407: DENIED,
    408: NO_ANSWER,
    410: NOT_FOUND,
    412: REPLACED,
    416: REPLACED,
    429: BUSY,
    504: NO_ANSWER,
}


def failure_of(error: BaseException, secrets: Sequence[str]) -> tuple[Failure, Exception]:
    """How a package failed, and its error for a traceback: the same, but without secrets in its text.

    The first cause decides: fsspec calls any failure over HTTP a missing file.
    """
    while isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    said = _without(secrets, " ".join(str(error).split()).rstrip("."))
    shown = RuntimeError(f"{type(error).__name__}: {said}").with_traceback(error.__traceback__)
    for cause in reversed(list(_causes(error))):
        named = (_BY_NAME[each.__name__] for each in type(cause).__mro__ if each.__name__ in _BY_NAME)
        if (found := next(named, None) or _by_status(cause)) is not None:
            return found, shown
    return Failure(f"cannot be read: {said or type(error).__name__}", "Check the URI and the settings of its package"), shown


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _by_status(error: BaseException) -> Failure | None:
    """The failure that an HTTP status stands for, where the error has one."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        places = ((error, "status"), (response, "status_code"), (error, "code"))
        found = (getattr(owner, attribute, None) for owner, attribute in places)
        status = next((each for each in found if isinstance(each, int)), None)
    return _BY_STATUS.get(status) or (BUSY if status >= 500 else None) if isinstance(status, int) else None


def secrets_of(uri: str) -> list[str]:
    """The parts of a URI that no message may show, the longest first."""
    rest = uri.partition("://")[2]
    user = rest.rpartition("@")[0] if "@" in rest.partition("/")[0] or ":" in rest.partition("/")[0] else ""
    query = re.split(r"[?#]", rest, maxsplit=1)[1:]
    parts = [user, *re.split("[:]", user), *query, *(part.partition("=")[2] for q in query for part in re.split("[&#]", q))]
    both = {part for each in parts for part in (each, unquote(each)) if len(part) > 2}
    return sorted(both, key=len, reverse=True)


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return without_secrets(text)
