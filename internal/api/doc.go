// Package api holds the nouns and the rules of the /v0 contract (docs/API.md,
// docs/CONTRACT.md): requests and results, limits, error codes, names, the strict
// JSON reader and the encoders.
// It has no behaviour of its own; the server decodes into it and the engine
// answers with it.
package api
