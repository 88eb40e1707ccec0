"""The server of a page that is explored: who is let in, and what it answers to what makes no sense."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import jaxmbd as mbd
from jaxmbd.errors import MechanismError
from jaxmbd.view._server import HOST, Server
from jaxmbd.view._session import Session
from jaxmbd.view._widget import widget

pytest.importorskip("websockets", reason="needs websockets: pip install 'jaxmbd[live]'")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    example = mbd.examples.get("pendulum")
    session = Session(example.mechanism, example.state(), parameters=["O.b.position[0]"], show=["rod.y"], title="<b>")
    server = Server(session).start()
    yield server
    server.stop()


def get(server: Server, path: str, **headers: str) -> tuple[int, Any, str]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def path_of(server: Server) -> str:
    return server.address.removeprefix(server.origin)


def upgraded(server: Server, path: str, **headers: str) -> int:
    """The status of the answer to a request for a socket."""
    usual = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    return get(server, path, **usual, **{"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}, **headers)[0]


def test_the_page_is_sent_to_who_knows_its_address(server: Server) -> None:
    status, headers, text = get(server, path_of(server))
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert f"connect-src ws://{HOST}:{server.port}{path_of(server)}socket" in text
    assert "&lt;b&gt;" in text
    assert "<title><b>" not in text
    assert headers["X-Frame-Options"] == "DENY"
    assert headers.get_all("Content-Length") == [str(len(text.encode()))]


@pytest.mark.parametrize("path", ["/", "/socket", "/secret/", "/../etc/passwd"])
def test_other_paths_are_not_found(server: Server, path: str) -> None:
    assert get(server, path)[0] == 404


def test_another_name_of_this_computer_is_refused(server: Server) -> None:
    """As a page of another site would use whose name leads here."""
    assert get(server, path_of(server), Host=f"example.org:{server.port}")[0] == 421
    assert upgraded(server, f"{path_of(server)}socket", Host="example.org", Origin="http://example.org") == 421


@pytest.mark.parametrize("origin", ["http://example.org", "null", "http://127.0.0.1", None])
def test_a_socket_of_another_page_is_refused(server: Server, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    assert upgraded(server, f"{path_of(server)}socket", **headers) == 403


def test_it_listens_on_this_computer_alone(server: Server) -> None:
    assert server._server.socket.getsockname()[0] == "127.0.0.1"


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    from websockets.sync.client import connect

    address = f"ws://{HOST}:{server.port}{path_of(server)}socket"
    with connect(address, origin=server.origin, max_size=None, compression=None, proxy=None) as found:  # pyright: ignore
        yield found


def test_messages_are_answered(connection: Any) -> None:
    connection.send(json.dumps({"kind": "drag", "id": 3, "frame": 0, "offset": [0.5, 0.0], "target": [0.0, -1.0]}))
    answer = json.loads(connection.recv())
    assert answer["kind"] == "pose"
    assert answer["id"] == 3


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, '{"kind": 1e999}', b"\x00\xff", '{"kind": "drag", "id": NaN}'])
def test_garbage_is_answered_by_an_error(connection: Any, text: str | bytes) -> None:
    connection.send(text)
    assert json.loads(connection.recv())["kind"] == "error"
    connection.send(json.dumps({"kind": "shapes"}))
    assert json.loads(connection.recv())["kind"] == "shapes"


def test_a_message_that_is_too_long_ends_its_connection_alone(server: Server, connection: Any) -> None:
    from websockets.exceptions import ConnectionClosed

    connection.send("x" * 100_000)
    with pytest.raises(ConnectionClosed):
        connection.recv()
    assert get(server, path_of(server))[0] == 200


@pytest.mark.parametrize("port", [-1, 80, 70_000, "8000", True, 1.5])
def test_ports_that_are_none(server: Server, port: Any) -> None:
    with pytest.raises(MechanismError, match="port must be"):
        Server(server.session, port)


def test_a_port_that_is_taken(server: Server) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MechanismError, match=f"Port {port} cannot be used"):
            Server(server.session, port)


def test_it_ends_with_its_connections() -> None:
    example = mbd.examples.get("pendulum")
    server = Server(Session(example.mechanism, example.state(), parameters=[])).start()
    server.stop()
    server.wait()
    with pytest.raises(ConnectionRefusedError):
        get(server, "/")


def test_a_notebook_gets_the_same_answers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widget, whose messages come from the kernel's channel."""
    pytest.importorskip("anywidget", reason="needs anywidget: pip install 'jaxmbd[live]'")
    sent = list[Any]()
    made = widget(server.session, 400)
    monkeypatch.setattr(made, "send", sent.append, raising=False)
    made._handle_custom_msg({"kind": "drag", "id": 5, "frame": 0, "offset": [0.5, 0.0], "target": [0.0, -1.0]}, [])
    made._handle_custom_msg({"kind": "run", "id": 6}, [])
    assert [(answer["kind"], answer["id"]) for answer in sent] == [("pose", 5), ("error", 6)]
    assert made.height == 400
    assert 'type="text/plain">frame</script>' in made.page
    assert "connect-src" not in made.page


def test_what_is_missing_is_told_with_how_to_install_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxmbd.errors.find_spec", lambda name: None)
    with pytest.raises(MechanismError, match=r"websockets.*pip install 'jaxmbd\[live\]'"):
        Server(server.session)
    with pytest.raises(MechanismError, match=r"anywidget.*pip install 'jaxmbd\[live\]'"):
        widget(server.session, 400)
