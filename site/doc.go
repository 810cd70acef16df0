// Package site builds the documentation site (make site) and tests it: every link leads
// somewhere, no page asks anybody else for anything, and what START.md and the README
// tell a reader to type does what they say.
package site
