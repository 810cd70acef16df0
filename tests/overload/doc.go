// Package overload attacks a built weir from outside: bodies that are slow and
// large, and requests that mean harm. Nothing acknowledged may be lost by it,
// and memory stays bounded.
package overload
