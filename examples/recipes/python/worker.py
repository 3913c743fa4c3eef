"""Delivers messages with psycopg, without a relay: claims them, welcomes each user, and reports the outcome."""

import os
import time
import uuid

import psycopg


def welcome(payload):
    print(f"welcome {payload['email']}", flush=True)


token = uuid.uuid4()
# autocommit: a claim is committed before anything is sent
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    connection.execute("SELECT outbox.define_destination('welcome')")
    connection.execute("SELECT outbox.define_route('user.*', 'welcome')")
    while True:
        claim = "SELECT message_id, claim_no, payload FROM outbox.claim('welcome', %s, 100)"
        messages = connection.execute(claim, [token]).fetchall()
        for message_id, claim_no, payload in messages:
            try:
                welcome(payload)
            except Exception as error:
                nack = "SELECT outbox.nack(%s, %s, %s, attempt => %s)"
                connection.execute(nack, [token, message_id, str(error), claim_no])
            else:
                ack = "SELECT outbox.ack(%s, %s, attempt => %s)"
                connection.execute(ack, [token, message_id, claim_no])
        if not messages:
            time.sleep(1)
