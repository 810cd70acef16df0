// Package openapi judges the OpenAPI document of the server: whether it is valid, whether
// what servers send and take is what it says, and whether the examples of docs/API.md are.
//
// What servers send and take is in the files that a run of tests/contract leaves in the
// folder that WEIR_CONTRACT_RECORD names. Without the variable the test has one made.
package openapi
