// A receiver of signed webhooks in Go, without other packages. It verifies shared secrets (whsec_...) and public keys
// (whpk_...).
//
// Usage: WEBHOOK_SECRET=whsec_... or whpk_... PORT=... go run receiver.go
package main

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	tolerance = 5 * time.Minute
	maxBytes  = 5 << 20
)

// isGenuine verifies the signature over the bytes as they arrived, and the age of the request.
func isGenuine(secret string, header http.Header, body []byte) bool {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	kind, encoded, _ := strings.Cut(secret, "_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return false
	}
	signed := append([]byte(id+"."+timestamp+"."), body...)
	for _, entry := range strings.Split(header.Get("webhook-signature"), " ") {
		version, text, _ := strings.Cut(entry, ",")
		signature, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			continue
		}
		switch {
		case kind == "whsec" && version == "v1":
			mac := hmac.New(sha256.New, key)
			mac.Write(signed)
			if hmac.Equal(signature, mac.Sum(nil)) {
				return true
			}
		case kind == "whpk" && version == "v1a" && len(key) == ed25519.PublicKeySize:
			if ed25519.Verify(key, signed, signature) {
				return true
			}
		}
	}
	return false
}

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	receive := func(response http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, maxBytes))
		if err != nil {
			http.Error(response, "the body is too long", http.StatusRequestEntityTooLarge)
			return
		}
		if !isGenuine(secret, request.Header, body) {
			response.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(response, "the signature does not fit")
			return
		}
		fmt.Println(request.Header.Get("webhook-topic"), request.Header.Get("webhook-id"), string(body))
		response.WriteHeader(http.StatusNoContent)
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s/\n", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(receive)))
}
