"""Registers users over HTTP with psycopg. The user and the message are written in one transaction."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from psycopg.types.json import Jsonb


def register(email):
    # commits at the end of the block; an exception rolls back
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        insert = "INSERT INTO users (email) VALUES (%s) RETURNING id"
        (user_id,) = connection.execute(insert, [email]).fetchone()
        payload = Jsonb({"userId": user_id, "email": email})
        enqueue = "SELECT id FROM outbox.enqueue('user.registered', %s)"
        (message_id,) = connection.execute(enqueue, [payload]).fetchone()
    return message_id


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            answer, status = {"id": str(register(json.loads(body)["email"]))}, 201
        except psycopg.Error as error:
            print(error)
            answer, status = {"error": "not registered"}, 500
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


port = int(os.environ.get("PORT", "3000"))
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
