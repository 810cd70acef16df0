// Package weir is the root of a durable stream queue: topics that keep records
// in order and queues that hand jobs to workers, in one process, over HTTP.
//
// Today the root holds no code of its own: the server and its commands are in
// cmd/weir (`go run ./cmd/weir serve`), the engine is in internal/engine, and
// docs/ARCHITECTURE.md maps the rest. layout_test.go, beside this file, keeps
// the map true.
package weir
