package kafka

import (
	"maps"
	"slices"
)

// faults are mistakes that an owner could make in what it writes down.
var faults = map[string]func(w *window, limit int) (offset int64, metadata string){
	"a commit goes past what is unfinished": func(w *window, _ int) (int64, string) { return w.open, "" },
	"attempts are not carried": func(w *window, limit int) (int64, string) {
		list := w.spans()
		for i := range list {
			list[i].attempts = 0
		}
		return w.base(), formatSpans(w.base(), w.open, list, limit)
	},
	"what is finished is not carried": func(w *window, _ int) (int64, string) { return w.base(), "" },
	"the last of what is unfinished is forgotten": func(w *window, limit int) (int64, string) {
		list := w.spans()
		return w.base(), formatSpans(w.base(), w.open, list[:max(0, len(list)-1)], limit)
	},
}

// Faults are the names of all that Plant can plant.
func Faults() []string { return slices.Sorted(maps.Keys(faults)) }

// Plant gives a handle on a classic group a fault.
func Plant(b *Backend, fault string) { b.group.(*classic).write = faults[fault] }

// StandStill makes a handle take the locks of what it holds for ones that may have ended, as after a standstill of its process.
func StandStill(b *Backend) {
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	b.held.renewed = b.held.renewed.Add(-b.held.lock)
}

// Explain is what a handle that is at home nowhere makes of an error.
func Explain(err error) error { return new(Backend).explain(err) }
