"""The ASGI application: from a request to a page, to JSON, or to events.

Order of the checks: length, host, origin, login, route, read-only mode, body. Every failure is
answered in the form that the client asked for, and every change is logged in one line.
"""

import asyncio
import base64
import binascii
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ottla.client.cluster import NoBroker, Refused
from ottla.console import guards
from ottla.console.endpoints import (
    Call,
    Context,
    Done,
    Download,
    Endpoint,
    Events,
    Rejected,
    Result,
    User,
)
from ottla.console.failures import message_of, status_of
from ottla.console.rendering import STATIC_TYPES, render, static_files
from ottla.console.routes import NAVIGATION, ROUTES
from ottla.console.segments import PATH_LENGTH_MAX, Target, match, parse_path
from ottla.console.sessions import Credentials, Sessions
from ottla.protocol.faults import Fault
from ottla.security.sasl.credentials import LoginFailed

log = logging.getLogger(__name__)
audit = logging.getLogger("ottla.console.audit")

COOKIE: Final = "ottla_session"
BODY_BYTES_MAX: Final = 4 << 20
BODY_S_MAX: Final = 30.0
REQUESTS_MAX: Final = 64
STREAMS_MAX: Final = 32
FIELDS_MAX: Final = 1_000
NOTICES_MAX: Final = 500
ANSWER_S_MAX: Final = 60.0
_JSON: Final = msgspec.json.Encoder()
_FAILURES: Final = (Refused, NoBroker, LoginFailed, Fault, OSError, TimeoutError)


class AppSettings(msgspec.Struct, frozen=True):
    """``hosts`` are the names that the console is reached by; ``is_https`` as browsers see it."""

    hosts: Collection[str]
    is_https: bool = False


class ConsoleApp:
    """The application."""

    def __init__(self, sessions: Sessions, context: Context, settings: AppSettings) -> None:
        self._sessions = sessions
        self._context = context
        self._settings = settings
        self._notices: OrderedDict[str, str] = OrderedDict()
        self._requests = 0
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self._requests += 1
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        finally:
            self._requests -= 1
        for name, value in guards.SECURITY_HEADERS:
            response.headers[name] = value
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1")
        target = parse_path(path)
        try:
            self._check(request, path)
            return await self._dispatch(request, target, path)
        except Rejected as rejected:
            return self._failed(target, rejected.status, rejected.message)
        except _FAILURES as error:
            return self._failed(target, status_of(error), message_of(error))
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("request failed method=%s path=%.200r", request.method, path)
            return self._failed(target, 500, "Failed; see the log of the console.")

    async def _dispatch(self, request: Request, target: Target, path: str) -> Response:
        if len(target.segments) == 2 and target.segments[0] == "static":
            return _static(request, target.segments[1])
        if target.segments in (("login",), ("logout",)):
            return await self._log_in_or_out(request, target)
        user = await self._identify(request)
        if user is None:
            return self._ask_for_login(request, target, path)
        return await self._serve(request, target, user)

    def _check(self, request: Request, path: str) -> None:
        """Raise `Rejected` for a request that is not served for any user."""
        if self._requests > REQUESTS_MAX:
            raise Rejected(503, "There are too many requests; try again.")
        if len(path) + len(request.scope["query_string"]) > PATH_LENGTH_MAX:
            raise Rejected(414, "The address is too long.")
        if not guards.is_host_served(request.headers.get("host", ""), self._settings.hosts):
            raise Rejected(421, "This host name is not served; see console.advertised.listeners.")
        reason = guards.foreign_origin(request.method, request.headers)
        if reason is not None:
            raise Rejected(403, f"The request comes from another site: {reason}.")

    # -- login -------------------------------------------------------------------

    async def _identify(self, request: Request) -> User | None:
        if not self._sessions.needs_login:
            return await self._sessions.shared_user()
        header = request.headers.get("authorization", "")
        if header:
            return await self._sessions.by_credentials(self._basic(header))
        session_id = _cookie(request)
        return self._sessions.by_id(session_id) if session_id else None

    def _basic(self, header: str) -> Credentials:
        scheme, _, text = header.partition(" ")
        try:
            name, separator, password = (
                base64.b64decode(text, validate=True).decode().partition(":")
            )
        except (binascii.Error, UnicodeDecodeError):
            separator = ""
        if scheme.lower() != "basic" or not separator:
            raise Rejected(401, "Log in with HTTP Basic.")
        return Credentials(name, password, self._sessions.mechanisms[0])

    def _ask_for_login(self, request: Request, target: Target, path: str) -> Response:
        if target.is_json or request.method != "GET":
            response = self._failed(target, 401, "Log in first.")
            if "sec-fetch-site" not in request.headers:  # a browser would show its own dialog
                response.headers["www-authenticate"] = 'Basic realm="console"'
            return response
        query = request.scope["query_string"].decode("latin-1")
        after = path + ("?" + query if query else "")
        return _redirect("/login" if after == "/" else f"/login?next={quote(after, safe='')}")

    async def _log_in_or_out(self, request: Request, target: Target) -> Response:
        if not self._sessions.needs_login:
            return _redirect("/")
        session_id = _cookie(request)
        if target.segments == ("logout",):
            if request.method != "POST":
                raise Rejected(405, "Use POST.")
            await self._sessions.log_out(session_id)
            response = _redirect("/login")
            response.delete_cookie(COOKIE, httponly=True, samesite="strict")
            return response
        if request.method == "POST":
            return await self._log_in(request, session_id)
        values = _pairs(request.scope["query_string"].decode("latin-1"))
        return self._login_page(values.get("next", "/"), "", 200)

    async def _log_in(self, request: Request, session_id: str) -> Response:
        values = await self._body(request)
        after = str(values.get("next") or "/")
        credentials = Credentials(
            str(values.get("user") or ""),
            str(values.get("password") or ""),
            str(values.get("mechanism") or self._sessions.mechanisms[0]),
        )
        try:
            created = await self._sessions.log_in(credentials)
        except LoginFailed:
            audit.warning("login refused user=%r", credentials.name[:200])
            return self._login_page(after, "The brokers refuse this user and password.", 401)
        audit.info("login user=%r", credentials.name[:200])
        if session_id:
            await self._sessions.log_out(session_id)
        response = _redirect(after if guards.is_local_path(after) else "/")
        response.set_cookie(
            COOKIE, created, httponly=True, samesite="strict", secure=self._settings.is_https
        )
        return response

    def _login_page(self, after: str, failure: str, status: int) -> Response:
        page = render(
            "login.html", next=after, failure=failure, mechanisms=self._sessions.mechanisms
        )
        return _html(page, status)

    # -- endpoints ---------------------------------------------------------------

    async def _serve(self, request: Request, target: Target, user: User) -> Response:
        endpoint, names = _route(request.method, target)
        if endpoint.is_change and self._context.is_read_only and not endpoint.is_preview:
            raise Rejected(403, "The console is read-only.")
        values: dict[str, Any] = _pairs(request.scope["query_string"].decode("latin-1"))
        notice = self._notices.pop(str(values.pop("notice", "")), "")
        if endpoint.is_change:
            values |= await self._body(request)
            if self._context.is_read_only and values.get("execute"):
                raise Rejected(403, "The console is read-only.")
        call = Call(user, self._context, names, values)
        async with asyncio.timeout(ANSWER_S_MAX):
            result = await self._run(endpoint, call)
        return self._reply(request, target, call, endpoint, result, notice)

    async def _run(self, endpoint: Endpoint, call: Call) -> Result:
        """Call the handler; log the outcome of a change."""
        if not endpoint.is_change:
            return await endpoint.handler(call)
        names = ",".join(call.names.values())[:300]
        try:
            result = await endpoint.handler(call)
        except BaseException as error:
            outcome = type(error).__name__
            audit.warning(
                "change user=%r path=%s names=%r outcome=%s",
                call.user.name, endpoint.path, names, outcome,
            )  # fmt: skip
            raise
        if isinstance(result, Done):
            audit.info(
                "change user=%r path=%s names=%r outcome=done %.300r",
                call.user.name, endpoint.path, names, result.message,
            )  # fmt: skip
        return result

    def _reply(
        self,
        request: Request,
        target: Target,
        call: Call,
        endpoint: Endpoint,
        result: Result,
        notice: str,
    ) -> Response:
        if isinstance(result, Download):
            name = quote(result.file_name, safe="")
            disposition = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
            return self._stream(result.parts, result.content_type, disposition)
        if isinstance(result, Events):
            parts = _events(result, as_json=target.is_json)
            headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
            return self._stream(parts, "text/event-stream", headers)
        if isinstance(result, Done):
            if target.is_json:
                return _json({"message": result.message, **result.data})
            token = self._context.random.bytes(12).hex()
            self._notices[token] = result.message
            while len(self._notices) > NOTICES_MAX:
                self._notices.popitem(last=False)
            mark = "&" if "?" in result.location else "?"
            return _redirect(f"{result.location}{mark}notice={token}")
        if target.is_json:
            return _json(result)
        if not endpoint.template:
            raise Rejected(404, "This is part of the JSON API only.")
        page = self._page(endpoint.template, call.user, data=result, call=call, notice=notice,
                          section=_section(target))  # fmt: skip
        return _html(page)

    def _stream(
        self, parts: AsyncIterator[bytes], content_type: str, headers: Mapping[str, str]
    ) -> Response:
        if self._streams >= STREAMS_MAX:
            raise Rejected(503, "There are too many live views and downloads; close one.")

        async def counted() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for part in parts:
                    yield part
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), media_type=content_type, headers=dict(headers))

    def _page(self, template: str, user: User | None, **values: Any) -> str:  # noqa: ANN401
        return render(
            template,
            user=user,
            navigation=NAVIGATION,
            is_read_only=self._context.is_read_only,
            needs_login=self._sessions.needs_login,
            **values,
        )

    def _failed(self, target: Target, status: int, message: str) -> Response:
        if target.is_json:
            return _json({"error": message, "status": status}, status)
        section = _section(target)
        page = self._page("error.html", None, status=status, message=message, section=section,
                          notice="")  # fmt: skip
        return _html(page, status)

    async def _body(self, request: Request) -> dict[str, Any]:
        """Return the fields of a body, JSON or a form. Raises `Rejected`."""
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in ("application/json", "application/x-www-form-urlencoded", ""):
            raise Rejected(415, "Send JSON or a form.")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S_MAX):
                async for piece in request.stream():
                    body += piece
                    if len(body) > BODY_BYTES_MAX:
                        raise Rejected(413, "The body is too large.")
        except TimeoutError:
            raise Rejected(408, "The body did not arrive in time.") from None
        if media != "application/json":
            return _pairs(body.decode("utf-8", "replace"))
        try:
            fields = msgspec.json.decode(bytes(body), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Rejected(400, f"The body must be a JSON object: {error}") from error
        return fields


def _pairs(text: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise Rejected(400, "The request has too many fields.") from error
    return dict(pairs)


def _route(method: str, target: Target) -> tuple[Endpoint, Mapping[str, str]]:
    looked_up = "GET" if method == "HEAD" else method
    is_path = False
    for endpoint in ROUTES:
        names = match(endpoint.path, target.segments)
        if names is None:
            continue
        is_path = True
        if endpoint.method == looked_up:
            return endpoint, names
    if is_path:
        raise Rejected(405, f"{method} is not possible here.")
    raise Rejected(404, "There is no such page.")


def _section(target: Target) -> str:
    return "/" + (target.segments[0] if target.segments else "")


def _cookie(request: Request) -> str:
    try:
        morsel = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


async def _events(events: Events, *, as_json: bool) -> AsyncIterator[bytes]:
    async for name, row in events.rows:
        data = _JSON.encode(row).decode() if as_json else render(events.template, data=row)
        lines: Sequence[str] = data.splitlines() or [""]
        text = "".join(f"data: {line}\n" for line in lines)
        yield f"event: {name}\n{text}\n".encode()


def _static(request: Request, name: str) -> Response:
    content = static_files().get(name)
    if content is None or request.method not in guards.SAFE_METHODS:
        raise Rejected(404, "There is no such file.")
    kind = STATIC_TYPES[name.rpartition(".")[2]]
    return Response(content, media_type=kind, headers={"cache-control": "max-age=3600"})


def _html(page: str, status: int = 200) -> Response:
    content = page.encode("utf-8", "backslashreplace")
    return Response(
        content,
        status,
        media_type="text/html; charset=utf-8",
        headers={"cache-control": "no-store"},
    )


def _json(value: object, status: int = 200) -> Response:
    content = _JSON.encode(value)
    return Response(
        content, status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def _redirect(location: str) -> Response:
    return Response(b"", 303, headers={"location": location, "cache-control": "no-store"})
