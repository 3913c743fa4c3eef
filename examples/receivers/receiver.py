"""A receiver of signed webhooks in Python, without other packages. It verifies shared secrets (whsec_...).

Usage: WEBHOOK_SECRET=whsec_... PORT=... python3 receiver.py
"""

import base64
import hashlib
import hmac
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SECONDS = 300
MAX_BYTES = 5 * 1024 * 1024

key = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"), validate=True)


def is_genuine(headers, body: bytes) -> bool:
    """Verifies the signature over the bytes as they arrived, and the age of the request."""
    event_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not timestamp.isascii() or not timestamp.isdigit():
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    signed = f"{event_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    signatures = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(one.encode(), expected.encode()) for one in signatures)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BYTES:
            self.answer(413, "the body is too long")
            return
        body = self.rfile.read(length)
        if not is_genuine(self.headers, body):
            self.answer(401, "the signature does not fit")
            return
        print(self.headers["webhook-topic"], self.headers["webhook-id"], body.decode(), flush=True)
        self.answer(204)

    def answer(self, status: int, text: str = ""):
        self.send_response(status)
        if status == 413:
            self.close_connection = True
        if status != 204:
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Receiver)
print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
