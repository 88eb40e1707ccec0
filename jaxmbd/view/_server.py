"""The server of a page that is explored: on this computer only, for one browser page at a time or several.

It is the threading server of the package websockets. A request must name the address at which it listens (a page of
another site whose name leads here names that), a socket must come from its own page (`Origin`), and both paths hold a
secret that only the printed address has, so that no other user of the computer finds them. A message has at most 64 kB.
"""

import http
import json
import logging
import secrets
import threading
import webbrowser
from typing import Any

from jaxmbd.errors import MechanismError, needs
from jaxmbd.view._live_page import live_page
from jaxmbd.view._session import Session

HOST = "127.0.0.1"
_MESSAGE = 2**16  # bytes of a message, at most
_PORTS = range(1024, 65536)
_SECURITY = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Server:
    """A server of a session, at a `port` that is free unless one is asked for; it answers once `start` is called.

    **Raises:** `MechanismError` without the package websockets, and for a port that is taken or none.
    """

    def __init__(self, session: Session, port: int = 0) -> None:
        needs("explore in a browser", "websockets", "live")
        from websockets.sync.server import serve

        if isinstance(port, bool) or not isinstance(port, int) or not (port == 0 or port in _PORTS):
            raise MechanismError(f"port must be a number from {_PORTS[0]} to {_PORTS[-1]}, got {port!r}.")
        self.session, self._secret = session, secrets.token_urlsafe(16)
        try:
            self._server = serve(
                self._serve,
                HOST,
                port,
                process_request=self._respond,
                max_size=_MESSAGE,
                compression=None,
                logger=_quiet(),
            )
        except OSError as error:
            raise MechanismError(
                f"Port {port} cannot be used ({error.strerror}): name another one, or none for one that is free."
            ) from error
        self.port = self._server.socket.getsockname()[1]
        self.origin = f"http://{HOST}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"{self.origin}/{self._secret}/"

    def start(self) -> "Server":
        """Begin to answer, in a thread of its own."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all connections."""
        self._server.shutdown()

    def open(self) -> bool:
        """Show the page in the browser; False if none could be started."""
        return webbrowser.open(self.address)

    def wait(self) -> None:
        """Wait until the server is stopped, or until Ctrl-C, which stops it."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.5)
        except KeyboardInterrupt:
            self.stop()

    def _respond(self, connection: Any, request: Any) -> Any:
        """The page, a refusal, or None for the socket."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        if hosts != [f"{HOST}:{self.port}"]:
            return connection.respond(http.HTTPStatus.MISDIRECTED_REQUEST, f"This server is {self.origin}.\n")
        if request.path == f"/{self._secret}/socket":
            if origins != [self.origin]:
                return connection.respond(http.HTTPStatus.FORBIDDEN, "Only the page of this server may connect.\n")
            return None
        if request.path != f"/{self._secret}/":
            return connection.respond(http.HTTPStatus.NOT_FOUND, "Open the address that jaxmbd has printed.\n")
        session, socket = self.session, f"/{self._secret}/socket"
        policy = f"; connect-src ws://{HOST}:{self.port}{socket}"
        text = live_page(session.title, session.linkage.mechanism.space.dim, socket, policy)
        response = connection.respond(http.HTTPStatus.OK, text)
        for name, value in _SECURITY.items():
            if name in response.headers:
                del response.headers[name]
            response.headers[name] = value
        return response

    def _serve(self, connection: Any) -> None:
        for message in connection:
            try:
                asked = json.loads(message)
            except (ValueError, RecursionError):
                asked = None
            connection.send(json.dumps(self.session.answer(asked), separators=(",", ":")))


def _quiet() -> Any:
    """A logger that says nothing: what a browser breaks off is no error."""
    logger = logging.getLogger("jaxmbd.live")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
