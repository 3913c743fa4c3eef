// Registers users over HTTP with pgx. The user and the message are written in one transaction.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// register commits when the function returns nil, and rolls back otherwise.
func register(ctx context.Context, pool *pgxpool.Pool, email string) (id string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var userID int
		insert := "INSERT INTO users (email) VALUES ($1) RETURNING id"
		if err := tx.QueryRow(ctx, insert, email).Scan(&userID); err != nil {
			return err
		}
		payload := map[string]any{"userId": userID, "email": email}
		enqueue := "SELECT id::text FROM outbox.enqueue('user.registered', $1)"
		return tx.QueryRow(ctx, enqueue, payload).Scan(&id)
	})
	return id, err
}

func main() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /users", func(w http.ResponseWriter, r *http.Request) {
		var user struct{ Email string }
		if err := json.NewDecoder(r.Body).Decode(&user); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id, err := register(r.Context(), pool, user.Email)
		if err != nil {
			log.Print(err)
			http.Error(w, "not registered", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(map[string]string{"id": id})
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "3000"), nil))
}
