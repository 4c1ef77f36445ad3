"""Bodies of the object store that are cut off, through a gateway before the real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import pytest
from botocore.exceptions import HTTPClientError
from pydantic import HttpUrl

from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.local.servers.stack import LocalStack

KEY, BODY = "tests/contracts/cut", b"N14228,1999\n" * 1_000
Telling = Literal["Content-Length", "Transfer-Encoding", "nothing"]
"""The header that says where the body ends."""


@contextmanager
def a_gateway(s3: S3Settings, telling: Telling, sent: float) -> Iterator[S3Settings]:
    """The settings of a gateway that hands on this share of every body, and closes the connection."""
    assert s3.endpoint is not None
    behind = f"{s3.endpoint.host}:{s3.endpoint.port}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = HTTPConnection(behind)
            asked.request("GET", self.path, headers=dict(self.headers.items()))
            answer = asked.getresponse()
            body = answer.read()
            asked.close()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            piece = body[: int(len(body) * sent)]
            if telling == "Content-Length":
                self.send_header(telling, str(len(body)))
            elif telling == "Transfer-Encoding":
                self.send_header(telling, "chunked")
                end = b"\r\n0\r\n\r\n" if sent == 1 else b""
                piece = f"{len(body):x}\r\n".encode() + piece + end
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield s3.model_copy(update={"endpoint": HttpUrl(f"http://127.0.0.1:{server.server_port}")})
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def s3(stack: LocalStack) -> S3Settings:
    settings = stack.settings().s3
    s3_client(settings).put_object(Bucket=settings.bucket, Key=KEY, Body=BODY)
    return settings


def read(s3: S3Settings) -> bytes:
    return s3_client(s3).get_object(Bucket=s3.bucket, Key=KEY)["Body"].read()


@pytest.mark.parametrize("telling", ["Content-Length", "Transfer-Encoding"])
def test_a_whole_object_is_read_whole(s3: S3Settings, telling: Telling) -> None:
    with a_gateway(s3, telling, sent=1) as before:
        assert read(before) == BODY


@pytest.mark.parametrize("telling", ["Content-Length", "Transfer-Encoding", "nothing"])
def test_an_object_that_is_cut_off_is_an_error_and_no_shorter_object(s3: S3Settings, telling: Telling) -> None:
    with a_gateway(s3, telling, sent=0.5) as before, pytest.raises(HTTPClientError):
        read(before)
