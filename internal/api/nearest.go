package api

import (
	"slices"
	"strings"
)

// maxTypos is how many letters may be wrong in a name that is taken for another.
const maxTypos = 2

// maxTyped is the longest name that is compared.
const maxTyped = 64

// Nearest returns the name that was probably meant, empty if none is near: the one with the fewest
// typing errors or, if all have too many, the only one of which some words were left out or that was
// given some more.
func Nearest(typed string, names []string) string {
	if len(typed) > maxTyped {
		return ""
	}
	best, near := maxTypos+1, ""
	for _, name := range names {
		if strings.EqualFold(typed, name) {
			return name
		}
		d := distance(typed, name)
		if d > 1 && (name == "" || !strings.HasPrefix(typed, name[:1])) {
			continue // who errs twice does not err in the first letter
		}
		if d < best && d < len(name)/2+1 {
			best, near = d, name
		}
	}
	if near != "" {
		return near
	}
	said := words(typed)
	for _, name := range names {
		if all := words(name); within(said, all) || within(all, said) {
			if near != "" {
				return ""
			}
			near = name
		}
	}
	return near
}

// words returns the words of a name such as lease_ms or data-dir.
func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
}

// within reports whether all words of some, which has any, are among all.
func within(some, all []string) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(word string) bool { return !slices.Contains(all, word) })
}

// distance is how many letters have to be added, removed, exchanged or swapped with their
// neighbour to turn a into b.
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
