// Package api holds the nouns and rules of the /v0 contract (docs/API.md,
// docs/CONTRACT.md): requests and results, limits, error codes, names, the strict JSON
// reader and the encoders. It has no behaviour of its own: the server decodes into its
// types, the engine answers with them, and the client uses them at the other end.
package api
