// Delivers messages with pgx, without a relay: claims them, welcomes each user, and reports the outcome.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

type message struct {
	ID      string `db:"message_id"`
	ClaimNo int    `db:"claim_no"`
	Payload struct{ Email string }
}

func welcome(m message) error {
	_, err := fmt.Println("welcome", m.Payload.Email)
	return err
}

func run(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	var token [16]byte
	rand.Read(token[:])
	define := "SELECT outbox.define_destination('welcome'), outbox.define_route('user.*', 'welcome')"
	if _, err := db.Exec(ctx, define); err != nil {
		return err
	}
	for {
		claim := "SELECT message_id::text, claim_no, payload FROM outbox.claim('welcome', $1, 100)"
		rows, _ := db.Query(ctx, claim, token)
		messages, err := pgx.CollectRows(rows, pgx.RowToStructByName[message])
		if err != nil {
			return err
		}
		for _, m := range messages {
			if failed := welcome(m); failed != nil {
				nack := "SELECT outbox.nack($1, $2, $3, attempt => $4)"
				_, err = db.Exec(ctx, nack, token, m.ID, failed.Error(), m.ClaimNo)
			} else {
				ack := "SELECT outbox.ack($1, $2, attempt => $3)"
				_, err = db.Exec(ctx, ack, token, m.ID, m.ClaimNo)
			}
			if err != nil {
				return err
			}
		}
		if len(messages) == 0 {
			time.Sleep(time.Second)
		}
	}
}

func main() {
	log.Fatal(run(context.Background()))
}
